"""From a size of a supernet to a model that has only this size."""

from collections import Counter
from typing import Any

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import LAYER_AXES, LayerSize, SubnetConfig
from .checks import check_plain_weights
from .copies import load_copies
from .units import kept_weights


def extract(model: ElasticPreTrainedModel, subnet: str | SubnetConfig | None) -> ElasticPreTrainedModel:
    """Cuts one size out of a supernet, as a model of its own.

    Args:
        model (`ElasticPreTrainedModel`):
            The supernet, or an extracted member. It is left as it is.
        subnet (`str`, `SubnetConfig` or `None`):
            A name in `model.config.subnets`, or a size; `None` copies the full model.

    Returns:
        `ElasticPreTrainedModel`: A model of the same class, with copies of the weights it keeps, and the label maps
        and all other settings of the supernet. Layers that differ are written with `per_layer_config`. It has no
        named subnets; name them to go on.

    Raises:
        TypeError: If the model is not elastic, or its weights are adapted or quantized.
        ValueError: If the name is unknown or the size does not fit.
    """
    check_plain_weights(model)
    sizes = model.resolve_subnet(subnet).layer_sizes(model.config)
    config = member_config(model.config, sizes)
    config._attn_implementation = model.config._attn_implementation
    member = type(model)(config).train(model.training)
    load_copies(member, dict(kept_weights(model.state_dict(), sizes, model.config)))
    return member


def member_config(config: ElasticConfig, sizes: tuple[LayerSize, ...]) -> ElasticConfig:
    """Gives the configuration of a model that has just these layers.

    Args:
        config ([`ElasticConfig`]):
            Configuration of the supernet.
        sizes (`tuple[LayerSize, ...]`):
            The layers that are kept, see [`SubnetConfig.layer_sizes`].

    Returns:
        [`ElasticConfig`]: The most frequent sizes as global values, the others in `per_layer_config`.
    """
    values: dict[str, Any] = config.to_dict()
    kept = [size.layer for size in sizes]
    groups = [size.group for size in sizes]
    values.update(
        name_or_path=config.name_or_path,
        num_hidden_layers=len(sizes),
        hidden_size=sizes[0].hidden_size,
        layer_types=[config.layer_types[layer] for layer in kept],
        layer_groups=groups if len(set(groups)) < len(groups) and config.layer_groups else None,
        first_attention_norm=config.first_attention_norm or kept[0] > 0,
        subnets={},
        per_layer_config={},
    )
    if not config.embedding_projection:
        values["embedding_size"] = values["hidden_size"]
    if config.random_block_seeds is not None:
        values["random_block_seeds"] = [config.random_block_seeds[layer] for layer in kept]
    for axis in LAYER_AXES:
        values[axis], _ = Counter(getattr(size, axis) for size in sizes).most_common(1)[0]
        for position, size in enumerate(sizes):
            if getattr(size, axis) != values[axis]:
                values["per_layer_config"].setdefault(position, {})[axis] = getattr(size, axis)
    if not values["per_layer_config"]:
        del values["per_layer_config"]
    return type(config)(**values)
