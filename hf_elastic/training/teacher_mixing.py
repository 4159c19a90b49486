"""Predictions of several teachers become one target: tensors in, tensor out.

A student that learns from the mixture gets the gradients that it would get from the weighted losses against each
teacher, for the cost of one loss.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

MIXING_STRATEGIES = ("weights", "confidence", "validation")


def prediction_kind(logits: Tensor, labels: Tensor | None = None, problem_type: str | None = None) -> str:
    """What a head predicts: `"classes"`, several `"labels"` at once, or `"values"`.

    Args:
        logits: What it gives for a batch.
        labels: Labels of the batch. They tell several labels from classes where the problem type is unset.
        problem_type: The `config.problem_type` of the model.

    Shape:
        logits: `[examples, outputs]`, or `[examples, tokens, classes]`, which are always classes.

    Example:
        >>> prediction_kind(torch.zeros(2, 3), torch.tensor([0, 2]))
        'classes'
    """
    if logits.dim() == 3:
        return "classes"
    if problem_type == "regression" or (problem_type is None and logits.shape[-1] == 1):
        return "values"
    several = problem_type is None and labels is not None and labels.is_floating_point()
    return "labels" if several or problem_type == "multi_label_classification" else "classes"


def mix_logits(
    logits: Sequence[Tensor],
    weights: Tensor,
    temperature: float = 1.0,
    kind: str = "classes",
    class_mask: Tensor | None = None,
) -> Tensor:
    """Logits of the weighted mean of several predictions.

    For `"classes"` the softened distribution of the result, `softmax(mixed / temperature)`, is the mean of the
    sources' softened distributions; for `"labels"` the same holds of each label's `sigmoid`; for `"values"`, and where
    logits are compared by their squared difference, the result is the mean of the logits. In each case the gradient of
    the loss against the result is the weighted mean of the gradients of the losses against the sources.

    Args:
        logits: Predictions of each source, all of the same shape. A single source is given back as it is.
        weights: How much each source counts, for all units or for each; need not sum to 1.
        temperature: What the student's loss divides logits by.
        kind: `"classes"`, `"labels"` or `"values"`.
        class_mask: Classes that exist, e.g. the non-padding positions an answer may start at. None means all.

    Shape:
        logits, class_mask: `[*units, outputs]`; weights: `[sources]` or `[sources, *units]`; output:
        `[*units, outputs]`.

    References:
        Hinton et al. 2015, Distilling the Knowledge in a Neural Network, https://arxiv.org/abs/1503.02531
        You et al. 2017, Learning from Multiple Teacher Networks, https://doi.org/10.1145/3097983.3098135

    Example:
        >>> mix_logits([torch.tensor([[2.0]]), torch.tensor([[4.0]])], torch.tensor([1.0, 3.0]), kind="values")
        tensor([[3.5000]])
    """
    if len(logits) == 1:
        return logits[0]
    stacked = torch.stack([each.detach() for each in logits])
    shares = _check_weights(weights, stacked)
    shares = (shares / shares.sum(dim=0)).reshape(*shares.shape, *[1] * (stacked.dim() - shares.dim()))
    if kind == "classes" and class_mask is not None:
        stacked = stacked.masked_fill(~class_mask.bool(), torch.finfo(stacked.dtype).min)
    return _MIXTURES[kind](stacked, shares, temperature)


def confidence_weights(
    logits: Sequence[Tensor],
    weights: Tensor,
    kind: str = "classes",
    labels: Tensor | None = None,
    class_mask: Tensor | None = None,
) -> Tensor:
    """How much each source counts for each unit: its weight times how far it is to be trusted there.

    With labels that is the likelihood that it gives them, `exp(-loss)`: the weights are then the posterior of the
    sources given the label. For two sources these are the weights of Zhang et al. (2022). For more, theirs cannot
    exceed `1 / (sources - 1)`, so that a teacher that alone is right counts little more than those that are wrong, and
    ours have no such limit. A unit whose label is not among the classes keeps the given weights.

    Without labels it is 1 minus the entropy of the prediction, as a share of the highest possible entropy (Kwon et al.
    2020). Values have none: they keep the given weights.

    Args:
        logits: Predictions of each source, all of the same shape.
        weights: How much each source counts before.
        kind: `"classes"`, `"labels"` or `"values"`.
        labels: What is right.
        class_mask: Classes that exist. None means all.

    Shape:
        logits, class_mask: `[*units, outputs]`; weights: `[sources]`; labels: `[*units]` for classes, else
        `[*units, outputs]`; output: `[sources, *units]`, which sums to 1 over the sources.

    References:
        Zhang et al. 2022, Confidence-Aware Multi-Teacher Knowledge Distillation, https://arxiv.org/abs/2201.00007
        Kwon et al. 2020, Adaptive Knowledge Distillation Based on Entropy,
        https://doi.org/10.1109/ICASSP40776.2020.9054698

    Example:
        >>> sure, unsure = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.0, 0.0]])
        >>> confidence_weights([sure, unsure], torch.ones(2), labels=torch.tensor([1]))
        tensor([[0.0347],
                [0.9653]])
    """
    units = logits[0].shape[:-1]
    if labels is not None:
        confidence = torch.stack([-label_losses(each, labels, kind, class_mask)[0] for each in logits])
    elif kind == "values":
        confidence = logits[0].new_zeros(len(logits), *units)
    else:
        certainty = torch.stack([1 - _relative_entropy(each, kind, class_mask) for each in logits])
        confidence = certainty.clamp(min=torch.finfo(certainty.dtype).tiny).log()
    prior = _check_weights(weights, confidence).log().reshape(-1, *[1] * len(units))
    return torch.softmax(prior + confidence, dim=0)


def validation_weights(weights: Sequence[float], losses: Sequence[float]) -> list[float]:
    """How much each teacher counts, by its loss on validation data.

    Each weight is multiplied by `exp(-loss)`, and the sum of all stays what it was, so that the teachers together keep
    their weight against the student's own largest subnet.

    Args:
        weights: How much each teacher counts before.
        losses: Mean loss of each.

    Returns:
        The weights.

    Example:
        >>> validation_weights([1.0, 1.0], [0.5, 0.5])
        [1.0, 1.0]
    """
    prior = torch.tensor(weights, dtype=torch.float64)
    shares = torch.softmax(prior.log() - torch.tensor(losses, dtype=torch.float64), dim=0)
    return (prior.sum() * shares).tolist()


def label_losses(
    logits: Tensor, labels: Tensor, kind: str = "classes", class_mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The loss of each unit against its label: cross-entropy, binary cross-entropy or squared difference.

    Args:
        logits: Predictions.
        labels: What is right. Classes that do not exist, such as -100, mean that there is no label.
        kind: `"classes"`, `"labels"` or `"values"`.
        class_mask: Classes that exist. None means all.

    Shape:
        logits, class_mask: `[*units, outputs]`; labels: `[*units]` for classes, else `[*units, outputs]`; both
        outputs: `[*units]`.

    Returns:
        The losses, 0 where there is no label, and whether there is one.

    Example:
        >>> label_losses(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
        (tensor([0.6931]), tensor([True]))
    """
    if kind == "values":
        losses = (logits - labels.reshape(logits.shape)).square().mean(dim=-1)
        return losses, torch.ones_like(losses, dtype=torch.bool)
    if kind == "labels":
        losses = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none").mean(dim=-1)
        return losses, torch.ones_like(losses, dtype=torch.bool)
    known = (labels >= 0) & (labels < logits.shape[-1])
    positions = labels.where(known, 0)[..., None]
    if class_mask is not None:
        known = known & class_mask.bool().gather(-1, positions)[..., 0]
    losses = -_log_distribution(logits, class_mask).gather(-1, positions)[..., 0]
    return losses.where(known, 0.0), known


def _check_weights(weights: Tensor, like: Tensor) -> Tensor:
    """The weights in the precision and on the device of what they are for."""
    if len(weights) != len(like):
        raise ValueError(f"There are {len(weights)} weights for {len(like)} sources. Give one weight to each.")
    return weights.to(like.device, like.dtype)


def _mix_classes(logits: Tensor, shares: Tensor, temperature: float) -> Tensor:
    mixed = torch.logsumexp(F.log_softmax(logits / temperature, dim=-1) + shares.log(), dim=0) * temperature
    return mixed.clamp(min=torch.finfo(mixed.dtype).min)  # finite, as the logits of classes that do not exist are


def _mix_labels(logits: Tensor, shares: Tensor, temperature: float) -> Tensor:
    present = torch.logsumexp(F.logsigmoid(logits / temperature) + shares.log(), dim=0)
    absent = torch.logsumexp(F.logsigmoid(-logits / temperature) + shares.log(), dim=0)
    return (present - absent) * temperature


def _mix_values(logits: Tensor, shares: Tensor, temperature: float) -> Tensor:
    return (logits * shares).sum(dim=0)


_MIXTURES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "classes": _mix_classes,
    "labels": _mix_labels,
    "values": _mix_values,
}


def _log_distribution(logits: Tensor, class_mask: Tensor | None) -> Tensor:
    if class_mask is not None:
        logits = logits.masked_fill(~class_mask.bool(), torch.finfo(logits.dtype).min)
    return F.log_softmax(logits, dim=-1)


def _relative_entropy(logits: Tensor, kind: str, class_mask: Tensor | None) -> Tensor:
    """The entropy of each unit's prediction, as a share of that of a uniform one."""
    if kind == "labels":
        logits, class_mask = (
            torch.stack([logits, torch.zeros_like(logits)], dim=-1),
            None,
        )  # a class for yes, one for no
    log_distribution = _log_distribution(logits, class_mask)
    entropy = -(log_distribution.exp() * log_distribution).sum(dim=-1)
    number = entropy.new_tensor(logits.shape[-1]) if class_mask is None else class_mask.sum(dim=-1).to(entropy.dtype)
    share = entropy / number.clamp(min=2).log()
    return share.mean(dim=-1) if kind == "labels" else share
