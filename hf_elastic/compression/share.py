"""From a model whose layers have their own weights to one whose layers share them."""

import operator
from collections.abc import Sequence
from typing import Literal

import torch

from ..modeling.modeling_elastic import ElasticPreTrainedModel
from .checks import check_plain_weights
from .copies import load_copies
from .units import layer_and_name


def share_layers(
    model: ElasticPreTrainedModel, layer_groups: Sequence[int], weights: Literal["mean", "first"] = "mean"
) -> ElasticPreTrainedModel:
    """Lets layers share their weights, which are saved once; the model has to be trained to get used to it.

    Args:
        model (`ElasticPreTrainedModel`):
            A model whose layers have their own weights. It is left as it is.
        layer_groups (`Sequence[int]`):
            For each layer a number; layers with the same one share their weights. E.g. `[0, 0, 0, 0, 1, 2]` for the
            lower four of six layers.
        weights (`str`, defaults to `"mean"`):
            What a group begins with: the mean of its layers' weights, or those of its `"first"` layer. Share before
            [`rank`] if the mean is taken, because ranking gives each layer's heads and neurons an order of its own.

    Returns:
        `ElasticPreTrainedModel`: A model of the same class, with the named subnets of the former.

    Raises:
        TypeError: If the model is not elastic, its weights are adapted or quantized, or `layer_groups` is no list of
            whole numbers.
        ValueError: If layers share weights already, there is not one number per layer, layers of a group differ in
            size or type, the mean is to be taken of experts that networks were split into, or a named subnet would
            keep different parts of shared weights.

    References:
        Lan et al. 2020, ALBERT (https://arxiv.org/abs/1909.11942)

    Example:
        >>> model = share_layers(convert("bert-base-uncased"), [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
    """
    check_plain_weights(model)
    if model.config.layer_groups is not None:
        raise ValueError(f"The model's layers share weights already: layer_groups={model.config.layer_groups}.")
    if weights not in ("mean", "first"):
        raise ValueError(f"weights={weights!r}: possible are 'mean' and 'first'.")
    try:
        groups = [operator.index(group) for group in layer_groups]
    except TypeError:
        raise TypeError(f"layer_groups={layer_groups!r}: give a list with a whole number for each layer.") from None
    sizes, is_split = model.config.layer_sizes(), model.config.expert_weighting == "unit"
    shared = [size for size, group in zip(sizes, groups, strict=False) if groups.count(group) > 1]
    if weights == "mean" and is_split and any(size.num_experts > 1 for size in shared):
        raise ValueError(
            "weights='mean': each layer's network was split in its own way, so that the mean would be one of unlike "
            "experts. Share before splitting, or give weights='first'."
        )
    config = type(model.config)(**model.config.to_dict() | {"layer_groups": groups})
    config.name_or_path = model.config.name_or_path
    config._attn_implementation = model.config._attn_implementation
    sharing = type(model)(config).train(model.training)
    load_copies(sharing, _shared_weights(model, config.layer_groups, weights))
    return sharing


def _shared_weights(model: ElasticPreTrainedModel, groups: list[int], weights: str) -> dict[str, torch.Tensor]:
    members: dict[str, list[torch.Tensor]] = {}
    for name, weight in model.state_dict().items():
        layer, rest = layer_and_name(name)
        if layer is not None:
            name = f"{name.removesuffix(f'layers.{layer}.{rest}')}layers.{groups[layer]}.{rest}"
        members.setdefault(name, []).append(weight)
    if weights == "first":
        return {name: values[0] for name, values in members.items()}
    return {name: torch.stack(values).mean(dim=0) for name, values in members.items()}
