"""Distillation losses: tensors in, scalar out.

Every loss is a sum over its units (examples, tokens, ...) divided by `normalizer`, the number of units in the whole
accumulated batch over all processes. The sums of the parts of a batch are then the sum of the batch, however it was
split; a normalizer of 0 gives 0. All losses are computed in float32 or better, and the teacher's side never receives a
gradient.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

Normalizer = float | int | Tensor | None


def kl_divergence(
    student_logits: Tensor,
    teacher_logits: Tensor,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    normalizer: Normalizer = None,
    class_mask: Tensor | None = None,
) -> Tensor:
    """Kullback-Leibler divergence of the student's class distribution from the teacher's, times temperature squared.

    The factor keeps the size of the gradients independent of the temperature.

    Args:
        student_logits: Scores of the student, one unit per leading index.
        teacher_logits: Scores of the teacher, same shape.
        temperature: Divides both logits; above 1 it softens both distributions.
        mask: Units that count, e.g. tokens with a label. None counts all.
        normalizer: Number of units of the whole batch. None means the units of this call.
        class_mask: Classes that exist, e.g. the non-padding positions an answer may start at. None means all.

    Shape:
        student_logits, teacher_logits, class_mask: `[*, classes]`; mask: `[*]`; output: `[]`.

    References:
        Hinton et al. 2015, Distilling the Knowledge in a Neural Network, https://arxiv.org/abs/1503.02531
        Hou et al. 2020, DynaBERT, https://arxiv.org/abs/2004.04037

    Example:
        >>> kl_divergence(torch.tensor([[2.0, 0.0]]), torch.tensor([[2.0, 0.0]]), temperature=2.0)
        tensor(0.)
    """
    _check_same_shape("logits", student_logits, teacher_logits)
    student, teacher = _units(student_logits, mask), _units(teacher_logits.detach(), mask)
    student, teacher = student / temperature, teacher / temperature
    if class_mask is not None:
        absent = ~_units(class_mask, mask).bool()
        # Finite, because 0 * inf is not a number where both sides rule a class out.
        lowest = torch.finfo(student.dtype).min
        student, teacher = student.masked_fill(absent, lowest), teacher.masked_fill(absent, lowest)
    divergence = F.kl_div(
        F.log_softmax(student, dim=-1), F.log_softmax(teacher, dim=-1), reduction="none", log_target=True
    )
    return _sum_over(divergence.sum(dim=-1), normalizer) * temperature**2


def logit_mse(
    student_logits: Tensor,
    teacher_logits: Tensor,
    normalizer: Normalizer = None,
) -> Tensor:
    """Squared difference of the outputs of a regression, averaged over the outputs of each example.

    Args:
        student_logits: Outputs of the student, one example per leading index.
        teacher_logits: Outputs of the teacher, same shape.
        normalizer: Number of examples of the whole batch. None means the examples of this call.

    Shape:
        student_logits, teacher_logits: `[*, outputs]`; output: `[]`.

    References:
        Ba and Caruana 2014, Do Deep Nets Really Need to be Deep?, https://arxiv.org/abs/1312.6184

    Example:
        >>> logit_mse(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [4.0]]))
        tensor(2.)
    """
    _check_same_shape("logits", student_logits, teacher_logits)
    difference = _units(student_logits) - _units(teacher_logits.detach())
    return _sum_over(difference.square().mean(dim=-1), normalizer)


def binary_kl(
    student_logits: Tensor,
    teacher_logits: Tensor,
    temperature: float = 1.0,
    normalizer: Normalizer = None,
) -> Tensor:
    """Kullback-Leibler divergence for independent labels, averaged over the labels, times temperature squared.

    Each label is a Bernoulli variable of its own, as in multi-label classification.

    Args:
        student_logits: Scores of the student, one example per leading index.
        teacher_logits: Scores of the teacher, same shape.
        temperature: Divides both logits; above 1 it softens both distributions.
        normalizer: Number of examples of the whole batch. None means the examples of this call.

    Shape:
        student_logits, teacher_logits: `[*, labels]`; output: `[]`.

    References:
        Hinton et al. 2015, Distilling the Knowledge in a Neural Network, https://arxiv.org/abs/1503.02531

    Example:
        >>> binary_kl(torch.tensor([[2.0, -1.0]]), torch.tensor([[2.0, -1.0]]))
        tensor(0.)
    """
    _check_same_shape("logits", student_logits, teacher_logits)
    student, teacher = _units(student_logits) / temperature, _units(teacher_logits.detach()) / temperature
    likely = teacher.sigmoid()
    divergence = likely * (F.logsigmoid(teacher) - F.logsigmoid(student))
    divergence = divergence + (1 - likely) * (F.logsigmoid(-teacher) - F.logsigmoid(-student))
    return _sum_over(divergence.mean(dim=-1), normalizer) * temperature**2


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
    _check_same_shape("hidden states", student_hidden, teacher_hidden)
    difference = _units(student_hidden, mask) - _units(teacher_hidden.detach(), mask)
    return _sum_over(difference.square().mean(dim=-1), normalizer)


def even_layer_map(student_layers: int, teacher_layers: int) -> list[tuple[int, int]]:
    """Pairs of layers to align: evenly spaced, in order, the last with the last.

    The side with fewer layers has each of them aligned once. Layers count from 1, which makes them indices into a
    tuple of hidden states, where 0 is the output of the embeddings.

    Args:
        student_layers: Number of layers of the student.
        teacher_layers: Number of layers of the teacher.

    Returns:
        Pairs (index of the student's hidden state, index of the teacher's).

    References:
        Jiao et al. 2020, TinyBERT, https://arxiv.org/abs/1909.10351

    Example:
        >>> even_layer_map(3, 6)
        [(1, 2), (2, 4), (3, 6)]
    """
    if student_layers < 1 or teacher_layers < 1:
        raise ValueError(
            f"A layer map needs at least one layer on each side, got student_layers={student_layers} and "
            f"teacher_layers={teacher_layers}."
        )
    pairs = min(student_layers, teacher_layers)
    return [(i * student_layers // pairs, i * teacher_layers // pairs) for i in range(1, pairs + 1)]


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


def _check_same_shape(what: str, student: Tensor, teacher: Tensor) -> None:
    if student.shape[-1:] != teacher.shape[-1:]:
        raise ValueError(
            f"The {what} of student and teacher differ in size: {student.shape[-1]} and {teacher.shape[-1]}. Use a "
            "teacher of the same size" + (", or hidden_weight=0." if what == "hidden states" else ".")
        )
    if student.shape != teacher.shape:
        raise ValueError(
            f"The {what} of student and teacher have different shapes: {tuple(student.shape)} and "
            f"{tuple(teacher.shape)}. Give both the same inputs."
        )


def _units(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """The units that count, `[units, size]`, in float32 or better."""
    # Selected rather than multiplied by 0, which would keep a NaN of the padding.
    units = values.reshape(-1, values.shape[-1]) if mask is None else values[_check_mask(mask, values)]
    return units.float() if units.dtype in (torch.float16, torch.bfloat16) else units


def _check_mask(mask: Tensor, values: Tensor) -> Tensor:
    if mask.shape != values.shape[:-1]:
        raise ValueError(
            f"The mask has shape {tuple(mask.shape)}, but there are {tuple(values.shape[:-1])} units. Give one mask "
            "entry per unit."
        )
    return mask.bool()


def _sum_over(losses: Tensor, normalizer: Normalizer) -> Tensor:
    # A part of a batch may have no unit at all, and so may the whole, e.g. without a masked token: 0 then, not 0 / 0.
    count = losses.numel() if normalizer is None else normalizer
    return losses.sum() / (count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1))
