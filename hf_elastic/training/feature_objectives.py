"""Distillation losses of what happens inside of a model: hidden states, attention maps and relations of its tokens.

They are sums over their units divided by a normalizer, as [`hf_elastic.training.objectives`] explains. Padding takes
no part in any of them, whatever it holds.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from .layer_maps import even_layer_map
from .objectives import Normalizer, at_least_float32, check_same_shape, sum_over, units_of


def hidden_state_mse(
    student_hidden: Tensor,
    teacher_hidden: Tensor,
    mask: Tensor | None = None,
    normalizer: Normalizer = None,
) -> Tensor:
    """Squared difference of two hidden states, averaged over the hidden size.

    Args:
        student_hidden: Hidden states of the student.
        teacher_hidden: Hidden states of the teacher, same shape.
        mask: Positions that count, normally the attention mask. None counts all.
        normalizer: Number of non-padding positions of the whole batch. None means those of this call.

    Shape:
        student_hidden, teacher_hidden: `[*, hidden]`; mask: `[*]`; output: `[]`.

    References:
        Romero et al. 2015, FitNets, https://arxiv.org/abs/1412.6550
        Jiao et al. 2020, TinyBERT, https://arxiv.org/abs/1909.10351

    Example:
        >>> hidden_state_mse(torch.zeros(1, 2, 4), torch.full((1, 2, 4), 3.0), mask=torch.tensor([[1, 0]]))
        tensor(9.)
    """
    check_same_shape("hidden states", student_hidden, teacher_hidden)
    difference = units_of(student_hidden, mask) - units_of(teacher_hidden.detach(), mask)
    return sum_over(difference.square().mean(dim=-1), normalizer)


def hidden_state_cosine(
    student_hidden: Tensor,
    teacher_hidden: Tensor,
    mask: Tensor | None = None,
    normalizer: Normalizer = None,
) -> Tensor:
    """One minus the cosine of the angle between two hidden states: their direction counts, their length does not.

    Args:
        student_hidden: Hidden states of the student.
        teacher_hidden: Hidden states of the teacher, same shape.
        mask: Positions that count, normally the attention mask. None counts all.
        normalizer: Number of non-padding positions of the whole batch. None means those of this call.

    Shape:
        student_hidden, teacher_hidden: `[*, hidden]`; mask: `[*]`; output: `[]`.

    References:
        Sanh et al. 2019, DistilBERT, https://arxiv.org/abs/1910.01108

    Example:
        >>> hidden_state_cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 5.0]]))
        tensor(1.)
    """
    check_same_shape("hidden states", student_hidden, teacher_hidden)
    student, teacher = units_of(student_hidden, mask), units_of(teacher_hidden.detach(), mask)
    return sum_over(1 - F.cosine_similarity(student, teacher, dim=-1), normalizer)


def hidden_state_contrastive(
    student_hidden: Tensor,
    teacher_hidden: Tensor,
    mask: Tensor | None = None,
    normalizer: Normalizer = None,
    temperature: float = 0.1,
) -> Tensor:
    """Cross-entropy of finding the teacher's state of the same example among those of all examples (InfoNCE).

    The state of an example is the mean over its tokens, and two states are compared by their cosine. The other
    examples are those of the micro-batch: this loss, unlike all others, depends on how a batch is cut, and is 0 for
    micro-batches of one example.

    Args:
        student_hidden: Hidden states of the student.
        teacher_hidden: Hidden states of the teacher, same shape.
        mask: Positions that count, normally the attention mask. None counts all.
        normalizer: Number of examples of the whole batch. None means those of this call.
        temperature: Divides the cosines; the lower, the more the nearest of the other examples count.

    Shape:
        student_hidden, teacher_hidden: `[examples, length, hidden]`; mask: `[examples, length]`; output: `[]`.

    References:
        van den Oord et al. 2018, Representation Learning with Contrastive Predictive Coding,
        https://arxiv.org/abs/1807.03748
        Tian et al. 2020, Contrastive Representation Distillation, https://arxiv.org/abs/1910.10699
        Sun et al. 2020, Contrastive Distillation on Intermediate Representations, https://arxiv.org/abs/2009.14167

    Example:
        >>> states = torch.eye(2)[:, None]
        >>> hidden_state_contrastive(states, states, temperature=1.0)
        tensor(0.3133)
    """
    check_same_shape("hidden states", student_hidden, teacher_hidden)
    student, teacher = (F.normalize(_pool(side, mask), dim=-1) for side in (student_hidden, teacher_hidden.detach()))
    with torch.autocast(student.device.type, enabled=False):
        similarities = student @ teacher.T / temperature
    own = torch.arange(len(student), device=student.device)
    return sum_over(F.cross_entropy(similarities, own, reduction="none"), normalizer)


def attention_divergence(
    student_map: Tensor,
    teacher_map: Tensor,
    mask: Tensor | None = None,
    normalizer: Normalizer = None,
) -> Tensor:
    """Kullback-Leibler divergence of what each token of the student attends to from what the teacher's does.

    It is averaged over the heads. Where the sides differ in their number, it is that of the means over the heads.

    Args:
        student_map: Attention weights of the student, as `attention_map` of `attention_states` or
            `output_attentions=True` gives them; they sum to 1 over the non-padding keys.
        teacher_map: Attention weights of the teacher.
        mask: Positions that count, normally the attention mask. None counts all.
        normalizer: Number of non-padding positions of the whole batch. None means those of this call.

    Shape:
        student_map, teacher_map: `[batch, heads, length, length]`; mask: `[batch, length]`; output: `[]`.

    References:
        Jiao et al. 2020, TinyBERT, https://arxiv.org/abs/1909.10351
        Wang et al. 2020, MiniLM, https://arxiv.org/abs/2002.10957

    Example:
        >>> attention_divergence(torch.full((1, 4, 2, 2), 0.5), torch.eye(2).expand(1, 3, 2, 2))
        tensor(0.6931)
    """
    _check_positions("attention maps", student_map, teacher_map, mask)
    student, teacher = at_least_float32(student_map), at_least_float32(teacher_map.detach())
    if student.shape[1] != teacher.shape[1]:
        student, teacher = student.mean(dim=1, keepdim=True), teacher.mean(dim=1, keepdim=True)
    if mask is not None:
        # Before the logarithm, so that neither a value nor a gradient of the padding is left.
        padding = ~(mask.bool()[:, None, :, None] & mask.bool()[:, None, None, :])
        student, teacher = student.masked_fill(padding, 1.0), teacher.masked_fill(padding, 0.0)
    student = student.clamp(min=torch.finfo(student.dtype).tiny).log()  # half precision rounds small weights to 0
    divergence = F.kl_div(student, teacher, reduction="none").sum(dim=-1).mean(dim=1)
    return sum_over(_counted(divergence, mask), normalizer)


def relation_divergence(
    student_states: Tensor,
    teacher_states: Tensor,
    mask: Tensor | None = None,
    normalizer: Normalizer = None,
    relation_heads: int = 12,
) -> Tensor:
    """Kullback-Leibler divergence between the relations of a layer's queries (or keys, or values) to each other.

    The vectors of all attention heads are joined and cut into `relation_heads` anew. The relations of a token are
    the softmax over the scaled dot products of its vector with all others of the head. Student and teacher may thus
    differ in the number and size of their attention heads. It is averaged over the relation heads.

    Args:
        student_states: Queries, keys or values of the student.
        teacher_states: The same of the teacher.
        mask: Positions that count, normally the attention mask. None counts all.
        normalizer: Number of non-padding positions of the whole batch. None means those of this call.
        relation_heads: Into how many heads both sides are cut; it divides heads times head size on both.

    Shape:
        student_states, teacher_states: `[batch, heads, length, head_dim]`, whose heads and head_dim may differ;
        mask: `[batch, length]`; output: `[]`.

    Raises:
        ValueError: If `relation_heads` does not divide a side's width.

    References:
        Wang et al. 2021, MiniLMv2, https://arxiv.org/abs/2012.15828

    Example:
        >>> values = torch.randn(1, 4, 5, 16)
        >>> relation_divergence(values, values, relation_heads=8)
        tensor(0.)
    """
    _check_positions("states", student_states, teacher_states, mask)
    student = _log_relations("student", student_states, mask, relation_heads)
    teacher = _log_relations("teacher", teacher_states.detach(), mask, relation_heads)
    divergence = F.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=-1).mean(dim=1)
    return sum_over(_counted(divergence, mask), normalizer)


def align_hidden_states(
    student_states: tuple[Tensor, ...],
    teacher_states: tuple[Tensor, ...],
    mask: Tensor | None = None,
    normalizer: Normalizer = None,
) -> Tensor:
    """Mean of [`hidden_state_mse`] over an evenly spaced map from the student's layers to the teacher's.

    Args:
        student_states: Hidden states of the student: the embeddings' output, then one per layer.
        teacher_states: Hidden states of the teacher, likewise; the number of layers may differ.
        mask: Positions that count, normally the attention mask. None counts all.
        normalizer: Number of non-padding positions of the whole batch. None means those of this call.

    Shape:
        student_states, teacher_states: tuples of `[*, hidden]`, layers + 1 long; mask: `[*]`; output: `[]`.

    References:
        Jiao et al. 2020, TinyBERT, https://arxiv.org/abs/1909.10351
        Hou et al. 2020, DynaBERT, https://arxiv.org/abs/2004.04037

    Example:
        >>> states = (torch.zeros(1, 2, 4), torch.ones(1, 2, 4), torch.zeros(1, 2, 4))
        >>> align_hidden_states(states[:2], states)
        tensor(1.)
    """
    pairs = even_layer_map(len(student_states) - 1, len(teacher_states) - 1)
    losses = [hidden_state_mse(student_states[s], teacher_states[t], mask, normalizer) for s, t in pairs]
    return torch.stack(losses).mean()


def _pool(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """The mean over the tokens of each example that has any, `[examples, hidden]`."""
    states = at_least_float32(hidden)
    if mask is None:
        return states.mean(dim=1)
    tokens = mask.bool()
    sums = states.masked_fill(~tokens[..., None], 0.0).sum(dim=1)
    lengths = tokens.sum(dim=1, keepdim=True)
    return (sums / lengths.clamp(min=1))[lengths[:, 0] > 0]


def _log_relations(side: str, states: Tensor, mask: Tensor | None, relation_heads: int) -> Tensor:
    """Logarithms of each token's relations to the non-padding tokens, `[batch, relation_heads, length, length]`."""
    vectors = at_least_float32(states.transpose(1, 2).flatten(2))
    width = vectors.shape[-1]
    if width % relation_heads:
        raise ValueError(
            f"relation_heads={relation_heads} does not divide the {width} features of the {side}'s attention heads "
            f"({states.shape[1]} heads of {states.shape[3]}). Give a divisor of the widths of student and teacher."
        )
    if mask is not None:
        vectors = vectors.masked_fill(~mask.bool()[..., None], 0.0)
    heads = vectors.unflatten(-1, (relation_heads, -1)).transpose(1, 2)
    with torch.autocast(heads.device.type, enabled=False):
        scores = (heads * heads.shape[-1] ** -0.5) @ heads.transpose(2, 3)
    if mask is not None:
        scores.masked_fill_(~mask.bool()[:, None, None, :], torch.finfo(scores.dtype).min)
    return F.log_softmax(scores, dim=-1)


def _counted(losses: Tensor, mask: Tensor | None) -> Tensor:
    return losses if mask is None else losses[mask.bool()]


def _check_positions(what: str, student: Tensor, teacher: Tensor, mask: Tensor | None) -> None:
    """Raises ValueError unless both sides, and the mask, have the same batch size and length."""
    shapes = {"student": (student.shape[0], student.shape[2]), "teacher": (teacher.shape[0], teacher.shape[2])}
    if mask is not None:
        shapes["mask"] = tuple(mask.shape)
    if len(set(shapes.values())) > 1:
        raise ValueError(
            f"The {what} or their mask differ in (batch, length): {shapes}. Give student and teacher the same inputs, "
            "and the mask of these."
        )
