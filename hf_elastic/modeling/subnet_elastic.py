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

# Matrix kernels work on blocks: an uneven width costs as much as the next multiple of this.
WIDTH_MULTIPLE = 32
# What can differ from layer to layer, and what is one number for the whole model.
LAYER_AXES = ("num_attention_heads", "intermediate_size", "num_experts", "num_experts_per_tok")
AXES = (*LAYER_AXES, "hidden_size")
# What `SubnetConfig.scaled` multiplies.
MULTIPLIERS = ("width", "depth", "heads", "ffn", "hidden", "experts")
# A single number of these means the layers that have experts.
EXPERT_AXES = ("num_experts", "num_experts_per_tok")


class LayerSize(NamedTuple):
    """Size of one encoder layer: its index in the supernet, and how many units of each axis it has.

    Args:
        layer (`int`):
            Index of the layer in the supernet.
        num_attention_heads (`int`):
            Attention heads.
        intermediate_size (`int`):
            Feed-forward neurons; of each expert, where there are experts.
        hidden_size (`int`):
            Features of the residual stream, the same in all layers of a model.
        num_experts (`int`, defaults to 1):
            Feed-forward experts. One is a plain feed-forward network.
        num_experts_per_tok (`int`, defaults to 1):
            Experts that a token goes through.
        group (`int`, *optional*):
            Number of the weights that the layer shares with others, see `layer_groups` in [`ElasticConfig`]. A layer
            without it has its own.
    """

    layer: int
    num_attention_heads: int
    intermediate_size: int
    hidden_size: int
    num_experts: int = 1
    num_experts_per_tok: int = 1
    group: int | None = None

    @property
    def weights(self) -> int:
        """Which of the model's layer modules holds the weights."""
        return self.layer if self.group is None else self.group


class HasLayerSizes(Protocol):
    """What is needed of a supernet's configuration, see [`ElasticConfig.layer_sizes`]."""

    layer_types: list[str]

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
        hidden_size (`int`, *optional*):
            Features of the residual stream: embeddings, norms and heads follow. As in the supernet by default.
        num_experts (`int` or `Sequence[int]`, *optional*):
            Experts in each kept layer; a single number means the layers that have experts. As in the supernet by
            default.
        num_experts_per_tok (`int` or `Sequence[int]`, *optional*):
            Experts that a token goes through, given in the same way. As in the supernet by default, or all experts
            that are left if these are fewer.

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
    hidden_size: int | None = None
    num_experts: int | tuple[int, ...] | None = None
    num_experts_per_tok: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.layers, int):
            raise TypeError(f"layers={self.layers!r}: give the indices of the kept layers, e.g. layers=(0, 2, 4).")
        if isinstance(self.hidden_size, Iterable):
            raise TypeError(
                f"hidden_size={self.hidden_size!r}: give one number, all layers have the same hidden size."
            )
        for name in ("layers", *AXES):
            smallest = 0 if name == "layers" else 1
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
        hidden: float = 1.0,
        experts: float = 1.0,
    ) -> SubnetConfig:
        """Scales a supernet by multipliers, as DynaBERT does (Hou et al. 2020, https://arxiv.org/abs/2004.04037).

        Where some layers see the whole sequence and others only a part of it, the former keep more: a multiplier `m`
        of heads and neurons is `(1 + m) / 2` for `"full_attention"` and `"block_sparse_attention"` layers.

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
            hidden (`float`, defaults to 1.0):
                Multiplier in (0, 1] of the hidden size.
            experts (`float`, defaults to 1.0):
                Multiplier in (0, 1] of the experts that a token goes through.

        Returns:
            `SubnetConfig`: Whole heads and experts, at least one; neurons and hidden size in multiples of 32, at least
            32 or all there are.

        Raises:
            TypeError: If `config` is no configuration of a supernet.
            ValueError: If a multiplier lies outside (0, 1], or no layer has the experts of which a part is asked for.
        """
        if not hasattr(config, "layer_sizes"):
            raise TypeError(f"config is a {type(config).__name__}: give the supernet's, e.g. model.config.")
        multipliers = {
            "num_attention_heads": width if heads is None else heads,
            "intermediate_size": width if ffn is None else ffn,
            "num_experts_per_tok": experts,
        }
        given = {"width": width, "depth": depth, "heads": heads, "ffn": ffn, "hidden": hidden, "experts": experts}
        for name, multiplier in given.items():
            if multiplier is None:
                continue
            if not isinstance(multiplier, (int, float)) or not 0 < multiplier <= 1:
                raise ValueError(f"{name}={multiplier!r}: a multiplier must lie in (0, 1]; 1 keeps everything.")
        full = config.layer_sizes()
        if experts != 1 and all(size.num_experts == 1 for size in full):
            raise ValueError(f"experts={experts!r}, but no layer has experts: leave it out.")
        layers = evenly_spaced(len(full), max(1, round_half_up(depth * len(full))))
        scaled = {
            axis: None if multiplier == 1 else collapse([_scale(axis, multiplier, full[i], config) for i in layers])
            for axis, multiplier in multipliers.items()
        }
        return cls(
            layers=None if len(layers) == len(full) else layers,
            hidden_size=None if hidden == 1 else scaled_width(hidden, full[0].hidden_size),
            **scaled,
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
        for axis in AXES:
            value = getattr(self, axis)
            if value is not None:
                entries = self._entries(axis, sizes)
                sizes = [size._replace(**{axis: entry}) for size, entry in zip(sizes, entries, strict=True)]
        if self.num_experts_per_tok is None:
            sizes = [
                size._replace(num_experts_per_tok=min(size.num_experts_per_tok, size.num_experts)) for size in sizes
            ]
        check_groups(sizes)
        return tuple(sizes)

    def _entries(self, axis: str, sizes: Sequence[LayerSize]) -> tuple[int, ...]:
        """Gives what this says of an axis for each kept layer, which the supernet has the sizes of."""
        value = getattr(self, axis)
        if isinstance(value, tuple):
            entries = value
        elif axis in EXPERT_AXES:
            if all(size.num_experts == 1 for size in sizes) and value != 1:
                raise ValueError(f"{axis}={value}: the supernet has no experts; leave it out.")
            entries = tuple(value if size.num_experts > 1 else 1 for size in sizes)
        else:
            entries = (value,) * len(sizes)
        if len(entries) != len(sizes):
            raise ValueError(
                f"{axis}={value} has {len(entries)} entries, but {len(sizes)} layers are kept: give one for each."
            )
        for size, entry in zip(sizes, entries, strict=True):
            if entry > getattr(size, axis):
                raise ValueError(
                    f"{axis}={value}: {entry} in layer {size.layer} is larger than the supernet's "
                    f"{getattr(size, axis)}; a subnet can only be as large as its supernet."
                )
            if axis == "num_experts_per_tok" and entry > size.num_experts:
                raise ValueError(
                    f"num_experts_per_tok={value}: {entry} in layer {size.layer} is more than the {size.num_experts} "
                    "experts that are kept."
                )
        return entries


def check_groups(sizes: Sequence[LayerSize]) -> None:
    """Checks that layers which share weights keep the same part of them.

    Raises:
        ValueError: If two layers of a group differ.
    """
    first: dict[int, LayerSize] = {}
    for size in sizes:
        if size.group is None:
            continue
        other = first.setdefault(size.group, size)
        for axis in AXES:
            if getattr(size, axis) != getattr(other, axis):
                raise ValueError(
                    f"{axis} is {getattr(other, axis)} in layer {other.layer} and {getattr(size, axis)} in layer "
                    f"{size.layer}, but these layers share their weights (layer_groups): give both the same."
                )


def check_nested(subnets: dict[str, SubnetConfig], config: HasLayerSizes) -> None:
    """Checks that of any two subnets one is a prefix of the other in all layers that both keep.

    Raises:
        ValueError: If two subnets cross: one is larger in one place, the other in another.
    """
    sizes = {name: {size.layer: size for size in subnet.layer_sizes(config)} for name, subnet in subnets.items()}
    for first, second in combinations(sizes, 2):
        larger: dict[str, str] = {}
        for layer in sizes[first].keys() & sizes[second].keys():
            for axis in AXES:
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


def _scale(axis: str, multiplier: float, size: LayerSize, config: HasLayerSizes) -> int:
    local = {"sliding_attention", "linear_attention"}
    types = set(config.layer_types)
    if axis != "num_experts_per_tok" and types & local and config.layer_types[size.layer] not in local:
        multiplier = (1 + multiplier) / 2
    if axis == "intermediate_size":
        return scaled_width(multiplier, size.intermediate_size)
    return max(1, round_half_up(multiplier * getattr(size, axis)))


def scaled_width(multiplier: float, width: int) -> int:
    """Gives a part of a width, in multiples of 32: at least 32, or all there is."""
    return min(width, max(WIDTH_MULTIPLE, WIDTH_MULTIPLE * round_half_up(multiplier * width / WIDTH_MULTIPLE)))


def collapse(values: Sequence[int]) -> int | tuple[int, ...]:
    """Gives one number where all are equal."""
    return values[0] if len(set(values)) == 1 else tuple(values)
