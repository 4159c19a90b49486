"""Sizes of a supernet as plain sequences of layers: put into words, compared, and told apart."""

from collections.abc import Iterable, Mapping, Sequence

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.subnet_elastic import AXES, LAYER_AXES, LayerSize, SubnetConfig, check_nested, collapse


def subnet_of(sizes: Sequence[LayerSize], config: ElasticConfig) -> SubnetConfig:
    """Describes layers in the shortest way: what is as in the supernet is left out, equal numbers are one number.

    Args:
        sizes (`Sequence[LayerSize]`):
            The layers that are kept.
        config ([`ElasticConfig`]):
            Configuration of the supernet.

    Raises:
        ValueError: If they do not fit the supernet.
    """
    full = config.layer_sizes()
    kept = [full[size.layer] for size in sizes]
    values = {"layers": None if len(sizes) == len(full) else tuple(size.layer for size in sizes)}
    if sizes[0].hidden_size != full[0].hidden_size:
        values["hidden_size"] = sizes[0].hidden_size
    for axis in LAYER_AXES:
        numbers = tuple(getattr(size, axis) for size in sizes)
        if numbers != tuple(getattr(size, axis) for size in kept):
            values[axis] = collapse(numbers)
    subnet = SubnetConfig(**values)
    subnet.layer_sizes(config)
    return subnet


def size_key(subnet: SubnetConfig, config: ElasticConfig) -> str:
    """Gives a text that is the same for all descriptions of one size."""
    sizes = subnet.layer_sizes(config)
    return ";".join(
        ",".join(str(number) for number in (size.layer, *(getattr(size, a) for a in AXES))) for size in sizes
    )


def nests(subnet: SubnetConfig, named: Mapping[str, SubnetConfig], config: ElasticConfig) -> bool:
    """Whether a size could be named beside others, see [`check_nested`]."""
    try:
        check_nested({**named, "the size": subnet}, config)
    except ValueError:
        return False
    return True


def by_width(subnets: Iterable[SubnetConfig], config: ElasticConfig) -> list[tuple[LayerSize, ...]]:
    """Gives the layers of sizes from the narrowest to the widest, by what part of the supernet's widths they have."""

    def width(sizes: tuple[LayerSize, ...]) -> tuple[float, int]:
        full = config.layer_sizes()
        parts = [getattr(size, axis) / getattr(full[size.layer], axis) for size in sizes for axis in AXES]
        return sum(parts) / len(parts), len(sizes)

    return sorted((subnet.layer_sizes(config) for subnet in subnets), key=width)


def span(values: Iterable[int | str]) -> str:
    """One number, or the smallest and the largest where layers or heads differ."""
    values = sorted(set(values))
    return str(values[0]) if len(values) == 1 else f"{values[0]}–{values[-1]}"
