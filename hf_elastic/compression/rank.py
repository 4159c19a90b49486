"""Puts the units of a supernet in order of importance, so that a smaller size is a prefix of a larger one."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from tqdm.auto import tqdm
from transformers.trainer_utils import has_length

from ..modeling.modeling_elastic import ElasticPreTrainedModel
from .checks import check_max_batches, check_plain_weights, model_inputs
from .evaluation_mode import evaluation_mode
from .scores import UnitScores
from .units import layer_and_name, units_of


@dataclass(frozen=True)
class Importance:
    """Scores of the units before they were reordered; the larger, the more the loss depends on the unit.

    Layers that share their weights have one entry together.

    Args:
        heads (`tuple[torch.Tensor, ...]`):
            One tensor of shape `(num_attention_heads,)` per layer.
        neurons (`tuple[torch.Tensor, ...]`):
            One tensor of shape `(intermediate_size,)` per layer; `(num_experts, intermediate_size)` where it has
            experts.
        num_examples (`int`):
            Number of examples that were averaged over.
        experts (`tuple[torch.Tensor | None, ...]`):
            One tensor of shape `(num_experts,)` per layer that has experts.
        hidden (`torch.Tensor`, *optional*):
            Scores of the hidden units, of shape `(hidden_size,)`, where they were ranked.
        features (`torch.Tensor`, *optional*):
            Scores of what the classifier reads, where that is not the hidden units.
    """

    heads: tuple[torch.Tensor, ...]
    neurons: tuple[torch.Tensor, ...]
    num_examples: int
    experts: tuple[torch.Tensor | None, ...] = ()
    hidden: torch.Tensor | None = None
    features: torch.Tensor | None = None


@torch.inference_mode(False)  # a caller's would let no gradients through
def rank(
    model: ElasticPreTrainedModel,
    dataloader: Iterable[Mapping[str, torch.Tensor]],
    max_batches: int | None = None,
    hidden: bool | None = None,
) -> Importance:
    """Scores heads, feed-forward neurons, experts and hidden units, and reorders them in place, the best first.

    A unit's score is what the loss would change, to first order, if the unit were removed: the absolute value of the
    unit's output times the loss's gradient with respect to it, summed over an example's positions and averaged over
    examples; of experts and their neurons, the same per batch. The score of a hidden unit is its mean absolute
    activation in all norms of the encoder, their scale included. The full model computes the same as before.

    Args:
        model (`ElasticPreTrainedModel`):
            The supernet, with a head. Its gradients, mode and active sub-network stay as they are.
        dataloader (`Iterable[Mapping[str, torch.Tensor]]`):
            Batches **of the training data**, with labels; scores from evaluation data would leak it into the sizes.
        max_batches (`int`, *optional*):
            Number of batches to use. All by default; a few hundred examples are usually enough.
        hidden (`bool`, *optional*):
            Whether to reorder the hidden units as well. By default if a named subnet has a smaller hidden size. Hidden
            states then no longer correspond unit by unit to those of the source model, which
            `model.config.hidden_units_ranked` remembers.

    Returns:
        `Importance`: The scores, in the order of the units before.

    Raises:
        TypeError: If the model is not elastic, or its weights are adapted or quantized.
        ValueError: If there is no batch, or one of them gives no loss or one that is not finite.

    References:
        Michel et al. 2019, Are Sixteen Heads Really Better than One? (https://arxiv.org/abs/1905.10650);
        Molchanov et al. 2017, Pruning Convolutional Neural Networks (https://arxiv.org/abs/1611.06440);
        hidden units: Muralidharan et al. 2024, Compact Language Models via Pruning and Knowledge Distillation
        (https://arxiv.org/abs/2407.14679); the use in a supernet: Hou et al. 2020, DynaBERT
        (https://arxiv.org/abs/2004.04037).
    """
    importance = score_units(model, dataloader, max_batches, hidden)
    reorder_units(model, importance)
    return importance


@torch.inference_mode(False)  # a caller's would let no gradients through
def score_units(
    model: ElasticPreTrainedModel,
    dataloader: Iterable[Mapping[str, torch.Tensor]],
    max_batches: int | None = None,
    hidden: bool | None = None,
) -> Importance:
    """Scores the units as [`rank`] does, and leaves them where they are.

    Args:
        model, dataloader, max_batches, hidden:
            As [`rank`] takes them.

    Returns:
        `Importance`: The scores, in the order of the units.

    Raises:
        TypeError, ValueError: As [`rank`] does.
    """
    check_plain_weights(model)
    check_max_batches(max_batches)
    if hidden is None:
        hidden = any(subnet.hidden_size is not None for subnet in model.config.subnets.values())
    scores = UnitScores(model, hidden)
    num_examples = _score(model, scores, itertools.islice(dataloader, max_batches), _length(dataloader, max_batches))
    return Importance(
        heads=tuple(layer["heads"] / num_examples for layer in scores.layers),
        neurons=tuple(layer["neurons"] / num_examples for layer in scores.layers),
        num_examples=num_examples,
        experts=tuple(layer["experts"] / num_examples if "experts" in layer else None for layer in scores.layers),
        hidden=scores.hidden,
        features=scores.features,
    )


@torch.no_grad()
def reorder_units(model: ElasticPreTrainedModel, importance: Importance) -> None:
    """Puts every weight's units in the order of their scores, in place, the best first.

    [`rank`] does so with the model that it scores. Another model of the same structure, such as the one that was
    fine-tuned from, gets the same units into the same places by it, as long as its units are in their first order.

    Args:
        model (`ElasticPreTrainedModel`):
            The supernet.
        importance (`Importance`):
            What [`rank`] gave.

    Raises:
        ValueError: If the scores are of a model with other layers or units.
    """
    check_plain_weights(model)
    _check_fits(model, importance)
    head_dim = model.config.head_dim
    outside = {}
    if importance.hidden is not None:
        outside["hidden"] = _order(importance.hidden)
        model.config.hidden_units_ranked = True
        if not model.config.embedding_projection:
            outside["embedding"] = outside["hidden"]
        outside["features"] = outside["hidden"] if importance.features is None else _order(importance.features)
    inside = []
    for heads, neurons, experts in zip(importance.heads, importance.neurons, importance.experts, strict=True):
        orders = {**outside, "heads": _order(heads), "head_dims": _spread(_order(heads), head_dim)}
        if experts is not None:
            orders["experts"] = _order(experts)
            neurons = neurons[orders["experts"]]
        orders["neurons"] = _order(neurons)
        orders["gated_neurons"] = _spread(orders["neurons"], 2)
        inside.append(orders)
    for name, weight in model.named_parameters():
        layer, _ = layer_and_name(name)
        reordered = weight
        for dimension, unit in enumerate(units_of(name)):
            order = (outside if layer is None else inside[layer]).get(unit)
            if order is not None:
                reordered = _select(reordered, dimension, order)
        if reordered is not weight:
            weight.copy_(reordered)


def _length(dataloader: Iterable, max_batches: int | None) -> int | None:
    """Gives the number of batches for the progress bar, if it is known."""
    if not has_length(dataloader):  # a dataloader of a stream has the method, which raises
        return max_batches
    return len(dataloader) if max_batches is None else min(max_batches, len(dataloader))


def _score(model: ElasticPreTrainedModel, scores: UnitScores, batches: Iterable, num_batches: int | None) -> int:
    """Adds up the scores of all batches; gives the number of examples."""
    num_examples = 0
    with evaluation_mode(model), model.use_subnet(None), torch.enable_grad(), scores.collecting():
        for batch in tqdm(batches, total=num_batches, desc="Ranking", unit="batch"):
            num_examples += _add_scores(model, batch, scores)
    if num_examples == 0:
        raise ValueError("The dataloader gives no batch: ranking needs training examples.")
    return num_examples


def _add_scores(model: ElasticPreTrainedModel, batch: Mapping[str, torch.Tensor], scores: UnitScores) -> int:
    """Adds the scores of one batch; gives its size."""
    batch = model_inputs(batch, model.device)
    scores.start(batch.get("attention_mask"))
    loss = getattr(model(**batch, unpad_inputs=False), "loss", None)
    if loss is None:
        raise ValueError(
            f"{type(model).__name__} gives no loss for a batch of {sorted(batch)}: ranking needs a model with a head, "
            "and labels."
        )
    if not torch.isfinite(loss):
        raise ValueError(
            f"A batch of {sorted(batch)} gives a loss of {loss.item()}: check that it has labels other than -100 and "
            "no NaN, or rank in float32."
        )
    batch_size = len(next(iter(batch.values())))
    scores.add(loss, batch_size)
    return batch_size


def _check_fits(model: ElasticPreTrainedModel, importance: Importance) -> None:
    units = [(layer["heads"].shape, layer["neurons"].shape) for layer in UnitScores(model, hidden=False).layers]
    scored = [
        (heads.shape, neurons.shape) for heads, neurons in zip(importance.heads, importance.neurons, strict=False)
    ]
    if scored != units or not len(importance.heads) == len(importance.neurons) == len(importance.experts):
        raise ValueError(
            f"The scores are of a model with {_shapes(scored)}, and this one has {_shapes(units)}: rank a model of "
            "the same structure."
        )
    size = model.config.hidden_size
    for name, of_hidden in (("hidden", importance.hidden), ("features", importance.features)):
        if of_hidden is not None and len(of_hidden) != size:
            raise ValueError(f"The scores have {len(of_hidden)} {name} units, and the model has {size} hidden ones.")
    if importance.hidden is not None and (importance.features is not None) != _has_features(model):
        raise ValueError(
            f"A {type(model).__name__} does not have the head of the model that was ranked, whose classifier reads "
            "units of its own, or not: rank a model with such a head, or with hidden=False."
        )


def _has_features(model: ElasticPreTrainedModel) -> bool:
    """Whether the units that a classifier reads are scored by themselves."""
    return UnitScores(model, hidden=True).features is not None


def _shapes(units: list[tuple[torch.Size, torch.Size]]) -> str:
    return f"{len(units)} layers of (heads, neurons) {', '.join(dict.fromkeys(f'{h[0]}, {n[-1]}' for h, n in units))}"


def _order(scores: torch.Tensor) -> torch.Tensor:
    return scores.argsort(dim=-1, descending=True, stable=True)


def _spread(order: torch.Tensor, count: int) -> torch.Tensor:
    """Gives the order of entries for an order of units that have `count` neighbouring entries each."""
    return (order[..., None] * count + torch.arange(count, device=order.device)).flatten(-2)


def _select(weight: torch.Tensor, dimension: int, order: torch.Tensor) -> torch.Tensor:
    """Reorders one dimension: in one order, or in one of its own for each entry of the first dimension."""
    if order.dim() == 1:
        return weight.index_select(dimension, order)
    shape = [1] * weight.dim()
    shape[0], shape[dimension] = order.shape
    return weight.take_along_dim(order.view(shape), dim=dimension)
