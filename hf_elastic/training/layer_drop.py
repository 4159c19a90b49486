"""Leaving layers out of a training step, so that a model stands having fewer of them."""

import random

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.subnet_elastic import AXES, SubnetConfig


def drop_layers(subnet: SubnetConfig, config: ElasticConfig, probability: float, draw: str) -> SubnetConfig:
    """Leaves each layer of a size out with a probability; one at least is kept.

    Args:
        subnet: The size.
        config: Configuration of the supernet.
        probability: How likely each layer is left out, in [0, 1).
        draw: What the draw depends on, such as seed, step and name; on nothing else.

    Returns:
        The size without those layers.

    References:
        Fan et al. 2020, Reducing Transformer Depth on Demand with Structured Dropout (LayerDrop),
        https://arxiv.org/abs/1909.11556
    """
    if not probability:
        return subnet
    rng = random.Random(f"layer-drop-{draw}")
    sizes = subnet.layer_sizes(config)
    kept = [size for size in sizes if rng.random() >= probability] or [rng.choice(sizes)]
    axes = {axis: tuple(getattr(size, axis) for size in kept) for axis in AXES if axis != "hidden_size"}
    return SubnetConfig(layers=[size.layer for size in kept], hidden_size=kept[0].hidden_size, **axes)
