"""Sizes between the trained ones without a search: lower layers as in one of them, upper ones as in the next wider.

Mix'n'Match comes from MatFormer (Devvrit et al. 2023, https://arxiv.org/abs/2310.07707), where each layer of a model
that was trained in a few widths takes one of these; Gemma 3n's sizes between the two that were trained are made so.
Widths change as little as possible from layer to layer, and grow with depth. It is what a search has to beat.
"""

from itertools import pairwise

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.subnet_elastic import LayerSize, SubnetConfig
from .sizes import by_width, size_key, subnet_of

# Widths beside the full one where no sizes are named, those of MatFormer.
WIDTHS = (0.125, 0.25, 0.5)


def mix_n_match(config: ElasticConfig) -> list[SubnetConfig]:
    """Gives the sizes that are made by mixing two neighbouring ones, and these themselves.

    Args:
        config ([`ElasticConfig`]):
            Configuration of a supernet. Its named sizes and the full model are mixed; where no smaller one is named,
            the widths 1/8, 1/4, 1/2 and 1.

    Returns:
        `list[SubnetConfig]`: Each once, the narrowest first. Sizes of different hidden size are not mixed.
    """
    full = SubnetConfig()  # which is trained in any case
    others = [subnet for subnet in config.subnets.values() if subnet.layer_sizes(config) != full.layer_sizes(config)]
    others = others or [SubnetConfig.scaled(config, width=width) for width in WIDTHS]
    chain = [*by_width(others, config), full.layer_sizes(config)]
    found: dict[str, SubnetConfig] = {}
    for narrow, wide in pairwise(chain):
        for mixed in (narrow, *_mixed(narrow, wide, config), wide):
            subnet = subnet_of(mixed, config)
            found.setdefault(size_key(subnet, config), subnet)
    return list(found.values())


def _mixed(
    narrow: tuple[LayerSize, ...], wide: tuple[LayerSize, ...], config: ElasticConfig
) -> list[tuple[LayerSize, ...]]:
    """The two sizes joined at each layer; a layer that a size leaves out is left out where the size's part is."""
    if narrow[0].hidden_size != wide[0].hidden_size:
        return []
    # Layers that share their weights have one size, and change it together.
    groups = sorted({size.weights for size in config.layer_sizes()})
    mixed = []
    for first_wide in reversed(groups[1:]):
        parts = [size for size in narrow if size.weights < first_wide]
        parts += [size for size in wide if size.weights >= first_wide]
        if len(parts) >= min(len(narrow), len(wide)):  # where they keep other layers, few may be left
            mixed.append(tuple(sorted(parts, key=lambda size: size.layer)))
    return mixed
