"""Distillation losses of a model's outputs: tensors in, scalar out.

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
    student, teacher = _log_distributions(student_logits, teacher_logits, temperature, mask, class_mask)
    divergence = F.kl_div(student, teacher, reduction="none", log_target=True)
    return sum_over(divergence.sum(dim=-1), normalizer) * temperature**2


def soft_cross_entropy(
    student_logits: Tensor,
    teacher_logits: Tensor,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    normalizer: Normalizer = None,
    class_mask: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of the student's classes with the teacher's softened distribution, times temperature squared.

    Its gradient is that of [`kl_divergence`], and its value is larger by the entropy of the teacher, so that it is not
    0 where both agree. With a teacher that is sure of one class it is the ordinary cross-entropy.

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
        Jiao et al. 2020, TinyBERT, https://arxiv.org/abs/1909.10351

    Example:
        >>> soft_cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
        tensor(0.6931)
    """
    student, teacher = _log_distributions(student_logits, teacher_logits, temperature, mask, class_mask)
    return sum_over(-(teacher.exp() * student).sum(dim=-1), normalizer) * temperature**2


def logit_mse(
    student_logits: Tensor,
    teacher_logits: Tensor,
    mask: Tensor | None = None,
    normalizer: Normalizer = None,
    class_mask: Tensor | None = None,
) -> Tensor:
    """Squared difference of the outputs of a regression or of class scores, averaged over the outputs of each unit.

    Args:
        student_logits: Outputs of the student, one unit per leading index.
        teacher_logits: Outputs of the teacher, same shape.
        mask: Units that count, e.g. tokens with a label. None counts all.
        normalizer: Number of units of the whole batch. None means the units of this call.
        class_mask: Outputs that exist, e.g. the non-padding positions an answer may start at. None means all.

    Shape:
        student_logits, teacher_logits, class_mask: `[*, outputs]`; mask: `[*]`; output: `[]`.

    References:
        Ba and Caruana 2014, Do Deep Nets Really Need to be Deep?, https://arxiv.org/abs/1312.6184

    Example:
        >>> logit_mse(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [4.0]]))
        tensor(2.)
    """
    check_same_shape("logits", student_logits, teacher_logits)
    difference = units_of(student_logits, mask) - units_of(teacher_logits.detach(), mask)
    if class_mask is None:
        return sum_over(difference.square().mean(dim=-1), normalizer)
    present = units_of(class_mask, mask).bool()
    squares = difference.masked_fill(~present, 0.0).square()  # filled first: the gradient of a NaN's square is NaN
    return sum_over(squares.sum(dim=-1) / present.sum(dim=-1).clamp(min=1), normalizer)


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
    check_same_shape("logits", student_logits, teacher_logits)
    student, teacher = units_of(student_logits) / temperature, units_of(teacher_logits.detach()) / temperature
    likely = teacher.sigmoid()
    divergence = likely * (F.logsigmoid(teacher) - F.logsigmoid(student))
    divergence = divergence + (1 - likely) * (F.logsigmoid(-teacher) - F.logsigmoid(-student))
    return sum_over(divergence.mean(dim=-1), normalizer) * temperature**2


def check_same_shape(what: str, student: Tensor, teacher: Tensor) -> None:
    """Raises ValueError unless student and teacher have the same shape."""
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


def units_of(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """The units that count, `[units, size]`, in float32 or better."""
    # Selected rather than multiplied by 0, which would keep a NaN of the padding.
    units = values.reshape(-1, values.shape[-1]) if mask is None else values[_check_mask(mask, values)]
    return at_least_float32(units)


def at_least_float32(values: Tensor) -> Tensor:
    """The same values, in float32 where they were in half precision."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def sum_over(losses: Tensor, normalizer: Normalizer) -> Tensor:
    """The sum of the losses of all units, divided by the normalizer; None means the units of this call."""
    # A part of a batch may have no unit at all, and so may the whole, e.g. without a masked token: 0 then, not 0 / 0.
    count = losses.numel() if normalizer is None else normalizer
    return losses.sum() / (count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1))


def _log_distributions(
    student_logits: Tensor, teacher_logits: Tensor, temperature: float, mask: Tensor | None, class_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The logarithms of both sides' softened distributions, of the units and classes that count."""
    check_same_shape("logits", student_logits, teacher_logits)
    student, teacher = units_of(student_logits, mask), units_of(teacher_logits.detach(), mask)
    student, teacher = student / temperature, teacher / temperature
    if class_mask is not None:
        absent = ~units_of(class_mask, mask).bool()
        # Finite, because 0 * inf is not a number where both sides rule a class out.
        lowest = torch.finfo(student.dtype).min
        student, teacher = student.masked_fill(absent, lowest), teacher.masked_fill(absent, lowest)
    return F.log_softmax(student, dim=-1), F.log_softmax(teacher, dim=-1)


def _check_mask(mask: Tensor, values: Tensor) -> Tensor:
    if mask.shape != values.shape[:-1]:
        raise ValueError(
            f"The mask has shape {tuple(mask.shape)}, but there are {tuple(values.shape[:-1])} units. Give one mask "
            "entry per unit."
        )
    return mask.bool()
