"""A sub-network of a supernet, described by sizes alone.

What sets the description apart: it names no weights. Units are ranked once, the most important first, so that a size
is a prefix of every layer's heads and feed-forward neurons, and two sizes share whatever both keep.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, NamedTuple, Protocol

# Matrix kernels work on blocks: an uneven feed-forward width costs as much as the next multiple of this.
INTERMEDIATE_SIZE_MULTIPLE = 32


class LayerSize(NamedTuple):
    """Size of one encoder layer: its index in the supernet, its heads and its feed-forward neurons."""

    layer: int
    num_attention_heads: int
    intermediate_size: int


class HasLayerSizes(Protocol):
    """What is needed of a supernet's configuration, see [`ElasticConfig.layer_sizes`]."""

    def layer_sizes(self) -> tuple[LayerSize, ...]:
        """Gives the size of each layer of the full model."""


@dataclass(frozen=True)
class SubnetConfig:
    """One size of a supernet. `SubnetConfig()` is the full model.

    Args:
        layers (`Sequence[int]`, *optional*):
            Indices of the encoder layers that are kept, in ascending order. All layers by default.
        num_attention_heads (`int` or `Sequence[int]`, *optional*):
            Heads in each kept layer: one number for all, or one per kept layer. As in the supernet by default.
        intermediate_size (`int` or `Sequence[int]`, *optional*):
            Feed-forward neurons in each kept layer, given in the same way. As in the supernet by default.

    Raises:
        TypeError: If a size is not an integer or a sequence of integers.
        ValueError: If a size is smaller than one, or a sequence is empty.

    Example:
        >>> SubnetConfig(layers=(0, 2, 5), num_attention_heads=6, intermediate_size=(512, 384, 384))
        SubnetConfig(layers=(0, 2, 5), num_attention_heads=6, intermediate_size=(512, 384, 384))
    """

    layers: tuple[int, ...] | None = None
    num_attention_heads: int | tuple[int, ...] | None = None
    intermediate_size: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.layers, int):
            raise TypeError(f"layers={self.layers!r}: give the indices of the kept layers, e.g. layers=(0, 2, 4).")
        for name, smallest in (("layers", 0), ("num_attention_heads", 1), ("intermediate_size", 1)):
            value = getattr(self, name)
            if value is None:
                continue
            given = value
            if isinstance(value, Iterable) and not isinstance(value, str):
                value = tuple(_as_int(entry) for entry in value)
            else:
                value = _as_int(value)
            object.__setattr__(self, name, value)  # the class is frozen, so that subnets can be dictionary keys
            entries = value if isinstance(value, tuple) else (value,)
            if not entries:
                raise ValueError(f"{name}=() is empty: leave it out (None) to keep what the supernet has.")
            for entry in entries:
                if entry is None:
                    raise TypeError(f"{name}={given!r}: expected an integer or a sequence of integers.")
                if entry < smallest:
                    raise ValueError(f"{name}={value!r}: {entry} is smaller than {smallest}.")

    @classmethod
    def scaled(
        cls,
        config: HasLayerSizes,
        width: float = 1.0,
        depth: float = 1.0,
        heads: float | None = None,
        ffn: float | None = None,
    ) -> SubnetConfig:
        """Scales a supernet by multipliers, as DynaBERT does (Hou et al. 2020, https://arxiv.org/abs/2004.04037).

        Args:
            config (`ElasticConfig`):
                Configuration of the supernet.
            width (`float`, defaults to 1.0):
                Multiplier in (0, 1] of heads and feed-forward neurons alike.
            depth (`float`, defaults to 1.0):
                Multiplier in (0, 1] of the number of layers. The kept ones are evenly spaced, first and last included;
                of one, it is the first.
            heads (`float`, *optional*):
                Multiplier of the heads alone; `width` by default.
            ffn (`float`, *optional*):
                Multiplier of the feed-forward neurons alone; `width` by default.

        Returns:
            `SubnetConfig`: Whole heads, at least one; neurons in multiples of 32, at least 32 or all there are.

        Raises:
            TypeError: If `config` is no configuration of a supernet.
            ValueError: If a multiplier lies outside (0, 1].
        """
        heads = width if heads is None else heads
        ffn = width if ffn is None else ffn
        if not hasattr(config, "layer_sizes"):
            raise TypeError(f"config is a {type(config).__name__}: give the supernet's, e.g. model.config.")
        for name, multiplier in (("width", width), ("depth", depth), ("heads", heads), ("ffn", ffn)):
            if not isinstance(multiplier, (int, float)) or not 0 < multiplier <= 1:
                raise ValueError(f"{name}={multiplier!r}: a multiplier must lie in (0, 1]; 1 keeps everything.")
        full = config.layer_sizes()
        layers = evenly_spaced(len(full), max(1, round_half_up(depth * len(full))))
        return cls(
            layers=None if len(layers) == len(full) else layers,
            num_attention_heads=None
            if heads == 1
            else _collapse([max(1, round_half_up(heads * full[i].num_attention_heads)) for i in layers]),
            intermediate_size=None
            if ffn == 1
            else _collapse([_scaled_width(ffn, full[i].intermediate_size) for i in layers]),
        )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SubnetConfig:
        """Reads what [`~SubnetConfig.to_dict`] wrote.

        Raises:
            ValueError: If a key is unknown.
        """
        unknown = sorted(set(values) - set(cls.__dataclass_fields__))
        if unknown:
            raise ValueError(f"Unknown subnet setting {unknown[0]!r}: possible are {list(cls.__dataclass_fields__)}.")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Gives the settings that differ from the full model, in JSON's types."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value is not None
        }

    def layer_sizes(self, config: HasLayerSizes) -> tuple[LayerSize, ...]:
        """Resolves the description against a supernet.

        Args:
            config (`ElasticConfig`):
                Configuration of the supernet.

        Returns:
            `tuple[LayerSize, ...]`: One entry per kept layer, in order.

        Raises:
            ValueError: If a layer does not exist, is repeated or out of order; if a layer would be larger than the
                supernet's; or if a sequence has another length than the kept layers.
        """
        return self.select(config.layer_sizes())

    def select(self, full: Sequence[LayerSize]) -> tuple[LayerSize, ...]:
        """Does what [`~SubnetConfig.layer_sizes`] does, for a supernet given as the sizes of all its layers."""
        layers = tuple(range(len(full))) if self.layers is None else self.layers
        for layer in layers:
            if layer >= len(full):
                raise ValueError(
                    f"layers={layers}: layer {layer} does not exist, the supernet has {len(full)} layers "
                    f"(0 to {len(full) - 1})."
                )
        if any(later <= earlier for earlier, later in zip(layers, layers[1:], strict=False)):
            raise ValueError(
                f"layers={layers}: each layer may be kept once, in ascending order, e.g. {tuple(sorted(set(layers)))}."
            )
        sizes = [full[layer] for layer in layers]
        for name in ("num_attention_heads", "intermediate_size"):
            value = getattr(self, name)
            if value is None:
                continue
            entries = value if isinstance(value, tuple) else (value,) * len(layers)
            if len(entries) != len(layers):
                raise ValueError(
                    f"{name}={value} has {len(entries)} entries, but {len(layers)} layers are kept: give one for each."
                )
            for size, entry in zip(sizes, entries, strict=True):
                if entry > getattr(size, name):
                    raise ValueError(
                        f"{name}={value}: {entry} in layer {size.layer} is larger than the supernet's "
                        f"{getattr(size, name)}; a subnet can only be as large as its supernet."
                    )
            sizes = [size._replace(**{name: entry}) for size, entry in zip(sizes, entries, strict=True)]
        return tuple(sizes)


def check_nested(subnets: dict[str, SubnetConfig], config: HasLayerSizes) -> None:
    """Checks that of any two subnets one is a prefix of the other in all layers that both keep.

    Raises:
        ValueError: If two subnets cross: one is larger in one place, the other in another.
    """
    sizes = {name: {size.layer: size for size in subnet.layer_sizes(config)} for name, subnet in subnets.items()}
    for first, second in combinations(sizes, 2):
        larger: dict[str, str] = {}
        for layer in sizes[first].keys() & sizes[second].keys():
            for axis in ("num_attention_heads", "intermediate_size"):
                one, other = getattr(sizes[first][layer], axis), getattr(sizes[second][layer], axis)
                if one != other:
                    larger.setdefault(first if one > other else second, f"{axis} of layer {layer} ({one} and {other})")
        if len(larger) == 2:
            raise ValueError(
                f"Subnets {first!r} and {second!r} are not nested: {first!r} is larger in {larger[first]}, {second!r} "
                f"in {larger[second]}. Of two subnets, one must be at least as large as the other in all layers that "
                "both keep, because the smaller one's units are a prefix of the larger one's."
            )


def evenly_spaced(total: int, kept: int) -> tuple[int, ...]:
    """Picks `kept` of `total` indices, first and last included; gaps differ by one at most. One is the first."""
    if kept == 1:
        return (0,)
    return tuple((2 * i * (total - 1) + kept - 1) // (2 * (kept - 1)) for i in range(kept))


def round_half_up(value: float) -> int:
    """Rounds to the nearest integer, halves upwards (Python rounds them to even numbers)."""
    return int(value + 0.5)


def _as_int(value: Any) -> int | None:
    """Takes numpy's integers as well, but neither truth values nor numbers with a fraction; gives None for those."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _scaled_width(multiplier: float, width: int) -> int:
    multiple = INTERMEDIATE_SIZE_MULTIPLE
    return min(width, max(multiple, multiple * round_half_up(multiplier * width / multiple)))


def _collapse(values: Sequence[int]) -> int | tuple[int, ...]:
    """Gives one number where all are equal."""
    return values[0] if len(set(values)) == 1 else tuple(values)
