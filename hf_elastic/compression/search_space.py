"""The sizes that a search chooses among, each as a few whole numbers.

What is distinctive: every one of them nests with the sizes that the supernet names, so that it can be named as well.
Whatever is drawn is brought to the nearest size that does: wider than some of the named ones in all layers that both
keep, and narrower than the others. These are also the sizes that the training of the named ones prepared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.subnet_elastic import AXES, LAYER_AXES, LayerSize, SubnetConfig, evenly_spaced, scaled_width
from .sizes import by_width, size_key, subnet_of

# What is chosen of a layer. The number of experts is the largest that fits, as tokens go through a few of them only.
CHOSEN = ("num_attention_heads", "intermediate_size", "num_experts_per_tok")


@dataclass(frozen=True)
class Level:
    """A place between two neighbouring named sizes: the lowest and the highest width that nests with all of them.

    Args:
        widths (`dict[int, dict[str, tuple[int, int]]]`):
            By module and axis.
        hidden_size (`tuple[int, int]`):
            Of the whole model.
    """

    widths: dict[int, dict[str, tuple[int, int]]]
    hidden_size: tuple[int, int]

    def lowest(self, size: LayerSize) -> LayerSize:
        """Gives a layer the lowest widths."""
        return size._replace(**{axis: low for axis, (low, _) in self.widths[size.weights].items()})


class SearchSpace:
    """All sizes between the smallest and the largest named one, in steps.

    Args:
        config ([`ElasticConfig`]):
            Configuration of the supernet. Where it names no smaller size, widths begin at the first step.
        steps (`int`, defaults to 8):
            Widths of a layer, from the full one down: heads are whole, neurons in multiples of 32. The widths of named
            sizes come on top.
        further (`Iterable[SubnetConfig]`, *optional*):
            Other sizes whose widths come on top.

    Attributes:
        parameters (`dict[str, int]`): Whole numbers that stand for a size, by name: how many values each has.
    """

    def __init__(self, config: ElasticConfig, steps: int = 8, further: Iterable[SubnetConfig] = ()):
        self.config, self.steps = config, steps
        self.full = config.layer_sizes()
        smaller = [subnet for subnet in config.subnets.values() if subnet.layer_sizes(config) != self.full]
        self.named = by_width(smaller, config)
        self.modules = {size.weights: size for size in reversed(self.full)}
        self.min_layers = min((len(sizes) for sizes in self.named), default=1)
        self.smallest_part = {
            axis: min(
                (getattr(size, axis) / getattr(self.full[size.layer], axis) for sizes in self.named for size in sizes),
                default=0.0,
            )
            for axis in AXES
        }
        known = [self.full, *self.named, *(subnet.layer_sizes(config) for subnet in further)]
        self.values = {module: self._values_of(module, known) for module in self.modules}
        self.hidden_sizes = sorted({sizes[0].hidden_size for sizes in known})
        numbers = range(1, len(self.named) + 1) if self.named else [0]
        levels = [self._level(number) for number in numbers]
        self.levels = [level for level in levels if level.hidden_size[0] <= level.hidden_size[1]]

    @property
    def parameters(self) -> dict[str, int]:
        """Names of the whole numbers, and how many values each has, from 0 on."""
        raise NotImplementedError

    def decode(self, numbers: Mapping[str, int]) -> SubnetConfig:
        """Gives the size that numbers stand for."""
        raise NotImplementedError

    def encode(self, subnet: SubnetConfig) -> dict[str, int] | None:
        """Gives numbers that stand for a size, if there are some."""
        raise NotImplementedError

    def nearest(self, sizes: Sequence[LayerSize]) -> SubnetConfig:
        """Gives the size that differs least from given layers and nests with the named ones.

        Args:
            sizes (`Sequence[LayerSize]`):
                Layers in order, of any widths.
        """
        fitted = [fit for level in self.levels if (fit := self._fit(sizes, level)) is not None]
        _, best = min(fitted, key=lambda fit: fit[0])
        return subnet_of(best, self.config)

    def narrowest(self) -> list[SubnetConfig]:
        """Gives sizes of as few layers and units as possible: one between each two neighbouring named ones."""
        found = []
        for level in self.levels:
            layers = sorted(self._narrowest_first(level, self._available(level))[: self.min_layers])
            sizes = [level.lowest(self.full[i])._replace(hidden_size=level.hidden_size[0]) for i in layers]
            if (fit := self._fit(sizes, level)) is not None:
                found.append(subnet_of(fit[1], self.config))
        return found

    def stepped(self, axis: str, part: float, width: int) -> int:
        """Gives a part of a width, in units that are kept as a whole."""
        return scaled_width(part, width) if axis == "intermediate_size" else max(1, round(part * width))

    def _values_of(self, module: int, known: Sequence[Sequence[LayerSize]]) -> dict[str, list[int]]:
        values = {}
        for axis in CHOSEN:
            width = getattr(self.modules[module], axis)
            parts = [step / self.steps for step in range(1, self.steps + 1)]
            stepped = {self.stepped(axis, part, width) for part in parts if part >= self.smallest_part[axis]}
            of_known = {getattr(size, axis) for sizes in known for size in sizes if size.weights == module}
            values[axis] = sorted(stepped | of_known)
        return values

    def _level(self, below: int) -> Level:
        """Gives what layers may have if the first `below` named sizes are narrower, and the others wider."""
        widths: dict[int, dict[str, tuple[int, int]]] = {}
        for module, full in self.modules.items():
            widths[module] = {}
            for axis in LAYER_AXES:
                of_named = [[getattr(size, axis) for size in sizes if size.weights == module] for sizes in self.named]
                lowest = self.values[module][axis][0] if axis in CHOSEN else 1
                low = max(chain.from_iterable(of_named[:below]), default=lowest)
                widths[module][axis] = low, min(chain.from_iterable(of_named[below:]), default=getattr(full, axis))
        hidden = [sizes[0].hidden_size for sizes in self.named]
        low = max(hidden[:below], default=self.hidden_sizes[0])
        return Level(widths, (low, min(hidden[below:], default=self.full[0].hidden_size)))

    def _available(self, level: Level) -> list[int]:
        """Gives the layers for which there are widths between the named ones."""
        bounds = {module: widths.values() for module, widths in level.widths.items()}
        return [size.layer for size in self.full if all(low <= high for low, high in bounds[size.weights])]

    def _narrowest_first(self, level: Level, layers: Iterable[int]) -> list[int]:
        def part(layer: int) -> float:
            full, lowest = self.full[layer], level.lowest(self.full[layer])
            return sum(getattr(lowest, axis) / getattr(full, axis) for axis in CHOSEN)

        return sorted(layers, key=part)

    def _fit(self, sizes: Sequence[LayerSize], level: Level) -> tuple[float, list[LayerSize]] | None:
        """Brings layers to a level, if possible; gives how much that changes as well."""
        available = self._available(level)
        if len(available) < self.min_layers:
            return None
        given = {size.layer: size for size in sizes}
        kept = {layer: given[layer] for layer in available if layer in given}
        missing = self._narrowest_first(level, [layer for layer in available if layer not in kept])
        widths = {size.weights: size for size in kept.values()}
        for layer in missing[: max(0, self.min_layers - len(kept))]:
            full = self.full[layer]  # which may share the weights of a layer that is there
            kept[layer] = widths.setdefault(full.weights, level.lowest(full))._replace(layer=layer)
        hidden = min(max(sizes[0].hidden_size, level.hidden_size[0]), level.hidden_size[1])
        change = abs(hidden - sizes[0].hidden_size) / self.full[0].hidden_size + len(kept.keys() ^ given.keys())
        fitted = []
        for layer in sorted(kept):
            before, after = kept[layer], self._bring_to(kept[layer], level)
            full = self.full[layer]
            change += sum(abs(getattr(after, a) - getattr(before, a)) / getattr(full, a) for a in CHOSEN)
            fitted.append(after._replace(hidden_size=hidden))
        return change, fitted

    def _bring_to(self, size: LayerSize, level: Level) -> LayerSize:
        """Gives a layer the nearest widths of a level that are steps."""
        widths = {}
        for axis, (low, high) in level.widths[size.weights].items():
            values = self.values[size.weights][axis] if axis in CHOSEN else [high]
            possible = [value for value in values if low <= value <= high]
            widths[axis] = min(possible, key=lambda value: abs(value - getattr(size, axis)))
        widths["num_experts_per_tok"] = min(widths["num_experts_per_tok"], widths["num_experts"])
        return size._replace(**widths)


class LayerSpace(SearchSpace):
    """Each layer is kept or not, with widths of its own."""

    @cached_property
    def parameters(self) -> dict[str, int]:
        counts = {f"layer_{size.layer}": 2 for size in self.full if self.min_layers < len(self.full)}
        counts |= {f"{axis}_{module}": len(self.values[module][axis]) for module in self.modules for axis in CHOSEN}
        return {name: count for name, count in (counts | {"hidden_size": len(self.hidden_sizes)}).items() if count > 1}

    def decode(self, numbers: Mapping[str, int]) -> SubnetConfig:
        hidden = self.hidden_sizes[numbers.get("hidden_size", 0)]
        sizes = []
        for size in self.full:
            values = self.values[size.weights]
            widths = {axis: values[axis][numbers.get(f"{axis}_{size.weights}", 0)] for axis in CHOSEN}
            if numbers.get(f"layer_{size.layer}", 1):
                sizes.append(size._replace(**widths, hidden_size=hidden))
        if not sizes:  # the nearest of no layer is one of the fewest layers
            sizes = [self.full[0]._replace(hidden_size=hidden)]
        return self.nearest(sizes)

    def encode(self, subnet: SubnetConfig) -> dict[str, int] | None:
        sizes = subnet.layer_sizes(self.config)
        kept = {size.layer for size in sizes}
        if sizes[0].hidden_size not in self.hidden_sizes:
            return None
        numbers = {"hidden_size": self.hidden_sizes.index(sizes[0].hidden_size)}
        for size in (*self.full, *sizes):  # where a layer is left out, the full widths
            numbers[f"layer_{size.layer}"] = int(size.layer in kept)
            for axis in CHOSEN:
                values = self.values[size.weights][axis]
                if getattr(size, axis) not in values:
                    return None
                numbers[f"{axis}_{size.weights}"] = values.index(getattr(size, axis))
        return {name: numbers[name] for name in self.parameters}


class ModelSpace(SearchSpace):
    """One width for all layers, of which the evenly spaced ones are kept."""

    @cached_property
    def parameters(self) -> dict[str, int]:
        counts = {"num_layers": len(self.full) - self.min_layers + 1, "hidden_size": len(self.hidden_sizes)}
        for axis in CHOSEN:
            counts[axis] = max(len(values[axis]) for values in self.values.values())
        return {name: count for name, count in counts.items() if count > 1}

    def decode(self, numbers: Mapping[str, int]) -> SubnetConfig:
        hidden = self.hidden_sizes[numbers.get("hidden_size", 0)]
        layers = evenly_spaced(len(self.full), self.min_layers + numbers.get("num_layers", 0))
        sizes = []
        for layer in layers:
            size = self.full[layer]
            values = self.values[size.weights]
            widths = {axis: values[axis][min(numbers.get(axis, 0), len(values[axis]) - 1)] for axis in CHOSEN}
            sizes.append(size._replace(**widths, hidden_size=hidden))
        return self.nearest(sizes)

    def encode(self, subnet: SubnetConfig) -> dict[str, int] | None:
        return self._numbers.get(size_key(subnet, self.config))

    @cached_property
    def _numbers(self) -> dict[str, dict[str, int]]:
        """The numbers of all sizes, which are few, by their keys."""
        numbers = [dict(zip(self.parameters, n, strict=True)) for n in product(*map(range, self.parameters.values()))]
        return {size_key(self.decode(of_size), self.config): of_size for of_size in numbers}


SPACES: dict[str, type[SearchSpace]] = {"layers": LayerSpace, "model": ModelSpace}
