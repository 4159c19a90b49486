"""How long a size will take, predicted from what others took on this machine: per layer, by its heads and neurons.

What is distinctive: whole passes are measured, and the part of each layer is worked out from their differences. So
caches and threads are those of a whole pass, and a runtime need not let anyone look at its layers.
"""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import LayerSize, SubnetConfig, scaled_width
from .checks import check_elastic
from .cost import check_at_least, forward_pass, limited_threads, seconds_of
from .evaluation_mode import evaluation_mode
from .sizes import size_key, subnet_of

# Gives a function that runs a size once. A runtime that needs a file makes it of `extract(model, subnet)`.
Runtime = Callable[[ElasticPreTrainedModel, SubnetConfig, "Workload"], Callable[[], object]]
RUNTIMES: dict[str, Runtime] = {
    "pytorch": lambda model, subnet, workload: forward_pass(
        model, subnet, workload.sequence_length, workload.batch_size
    ),
}
# Widths that are measured; between them, times are interpolated.
KNOTS = 5
COMPARED = 6  # sizes that the prediction is compared with
WARMUP_PASSES, MEASURED_PASSES = 1, 2  # of a size, before it is another one's turn


@dataclass(frozen=True)
class Workload:
    """What a latency is the latency of.

    Args:
        sequence_length (`int`, defaults to 128):
            Tokens per sequence, none of them padding.
        batch_size (`int`, defaults to 1):
            Sequences per pass.
        threads (`int`, *optional*):
            Threads within an operation; as torch is set by default.
        runtime (`str`, defaults to `"pytorch"`):
            A name in `RUNTIMES`.

    Raises:
        ValueError: If a number is smaller than one, or the runtime is unknown.
    """

    sequence_length: int = 128
    batch_size: int = 1
    threads: int | None = None
    runtime: str = "pytorch"

    def __post_init__(self) -> None:
        numbers = {"sequence_length": self.sequence_length, "batch_size": self.batch_size}
        check_at_least(1, **numbers | ({} if self.threads is None else {"threads": self.threads}))
        if self.runtime not in RUNTIMES:
            raise ValueError(f"runtime={self.runtime!r} is unknown: possible are {', '.join(RUNTIMES)}.")


@dataclass(frozen=True)
class LatencyTable:
    """Times of the parts of a pass.

    Args:
        workload ([`Workload`]):
            What was measured.
        milliseconds (`dict[str, dict[int, float]]`):
            By part and width: what every pass has, and what a layer adds by its heads and by its neurons. How its time
            is divided between the two is not known, and of no matter.
        errors (`tuple[float, ...]`):
            What the prediction was off, relative to the measured time, for each of a few sizes that the table was not
            made from; positive where it was too long.
    """

    workload: Workload
    milliseconds: dict[str, dict[int, float]]
    errors: tuple[float, ...] = ()

    @property
    def median_error(self) -> float:
        """The median of the errors without their signs; not a number where nothing was compared."""
        return statistics.median(map(abs, self.errors)) if self.errors else float("nan")

    def predict(self, subnet: SubnetConfig, config: ElasticConfig) -> float:
        """Gives the milliseconds that a pass of a size will take.

        Raises:
            ValueError: If the table knows no time of a part of it.
        """
        total = 0.0
        for part, width in _parts(subnet.layer_sizes(config), config):
            if part not in self.milliseconds:
                raise ValueError(f"The latency table has no times of {part!r}: measure one for this supernet.")
            known = self.milliseconds[part]
            total += sum(share * known[knot] for knot, share in _between(width, list(known)).items())
        return total

    @classmethod
    def measure(
        cls, model: ElasticPreTrainedModel, workload: Workload | None = None, rounds: int = 5, seed: int = 0
    ) -> "LatencyTable":
        """Measures sizes of a supernet, in turns, so that all meet the same disturbances.

        Args:
            model ([`ElasticPreTrainedModel`]):
                The supernet, as it stands (device, data type).
            workload ([`Workload`], *optional*):
                What to measure.
            rounds (`int`, defaults to 5):
                Turns of each size.
            seed (`int`, defaults to 0):
                Seed of the sizes that are drawn, some to learn from and some to compare with.

        Raises:
            TypeError: If the model is not elastic.
            ValueError: If the model cannot read texts of this length.
        """
        check_elastic(model)
        workload, config = workload or Workload(), model.config
        drawn = _random_sizes(config, 2 * COMPARED, random.Random(seed))
        known, compared = [*sizes_to_measure(config), *drawn[COMPARED:]], drawn[:COMPARED]
        times = measure_in_turns(model, [*known, *compared], workload, rounds)
        table = cls.fit(known, times[: len(known)], config, workload)
        pairs = zip(compared, times[len(known) :], strict=True)
        return replace(table, errors=tuple(table.predict(subnet, config) / time - 1 for subnet, time in pairs))

    @classmethod
    def fit(
        cls, subnets: Sequence[SubnetConfig], milliseconds: Sequence[float], config: ElasticConfig, workload: Workload
    ) -> "LatencyTable":
        """Finds the times of the parts whose sums come nearest to measured times, in proportion to these.

        Args:
            subnets (`Sequence[SubnetConfig]`):
                What was measured: at least [`sizes_to_measure`].
            milliseconds (`Sequence[float]`):
                The time of each.
            config ([`ElasticConfig`]):
                Configuration of the supernet.
            workload ([`Workload`]):
                What was measured.
        """
        knots = _knots(config)
        columns = {(part, width): i for i, (part, width) in enumerate((p, w) for p in knots for w in knots[p])}
        shares = np.zeros((len(subnets), len(columns)))
        for row, subnet, time in zip(shares, subnets, milliseconds, strict=True):
            for part, width in _parts(subnet.layer_sizes(config), config):
                for knot, share in _between(width, knots[part]).items():
                    row[columns[part, knot]] += share / time
        solution, *_ = np.linalg.lstsq(shares, np.ones(len(subnets)), rcond=None)
        times = {part: {width: float(solution[columns[part, width]]) for width in knots[part]} for part in knots}
        return cls(workload, times)

    def to_dict(self) -> dict[str, Any]:
        """Gives the table in JSON's types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "LatencyTable":
        """Reads what [`~LatencyTable.to_dict`] gave, be it from a file."""
        times = {part: {int(width): ms for width, ms in of.items()} for part, of in values["milliseconds"].items()}
        return cls(Workload(**values["workload"]), times, tuple(values["errors"]))


def measure_in_turns(
    model: ElasticPreTrainedModel, subnets: Sequence[SubnetConfig], workload: Workload, rounds: int = 5
) -> list[float]:
    """Measures passes of sizes in turns.

    Args:
        model ([`ElasticPreTrainedModel`]):
            The supernet.
        subnets (`Sequence[SubnetConfig]`):
            The sizes.
        workload ([`Workload`]):
            What to measure.
        rounds (`int`, defaults to 5):
            Turns of each size.

    Returns:
        `list[float]`: The median of each size, in milliseconds.
    """
    check_at_least(1, rounds=rounds)
    times: list[list[float]] = [[] for _ in subnets]
    with evaluation_mode(model), limited_threads(workload.threads):
        passes = [RUNTIMES[workload.runtime](model, subnet, workload) for subnet in subnets]
        for _ in tqdm(range(rounds), desc="Measuring latencies", unit="round", leave=False):
            for run, of_size in zip(passes, times, strict=True):
                for _ in range(WARMUP_PASSES):
                    run()
                of_size += [seconds_of(run) for _ in range(MEASURED_PASSES)]
    return [1000 * statistics.median(of_size) for of_size in times]


def _parts(sizes: Sequence[LayerSize], config: ElasticConfig) -> list[tuple[str, int]]:
    """Names what a pass of a size consists of, each part with its width."""
    hidden = f"hidden size {sizes[0].hidden_size}"
    parts = [(f"{hidden}: outside of the layers", 1)]
    for size in sizes:
        kind = f"{hidden}: {config.layer_types[size.layer]}"
        experts = f", {size.num_experts_per_tok} experts" if size.num_experts > 1 else ""
        parts += [(f"{kind}, heads", size.num_attention_heads), (f"{kind}{experts}, neurons", size.intermediate_size)]
    return parts


def _between(width: int, knots: Sequence[int]) -> dict[int, float]:
    """Gives the widths to interpolate between, with their shares; beyond the last ones, the line goes on."""
    if len(knots) == 1:
        return {knots[0]: 1.0}
    above = next((i for i, knot in enumerate(knots) if knot >= width), len(knots) - 1)
    low, high = knots[max(above, 1) - 1], knots[max(above, 1)]
    share = (width - low) / (high - low)
    return {low: 1 - share, high: share}


def _hidden_sizes(config: ElasticConfig) -> list[int]:
    return sorted({size.layer_sizes(config)[0].hidden_size for size in (SubnetConfig(), *config.subnets.values())})


def _variants(config: ElasticConfig) -> list[list[LayerSize]]:
    """Gives the full model with each hidden size, and with each number of experts that tokens go through."""
    full = config.layer_sizes()
    counts = range(1, max(size.num_experts_per_tok for size in full) + 1)
    return [
        [size._replace(hidden_size=hidden, num_experts_per_tok=min(count, size.num_experts_per_tok)) for size in full]
        for hidden in _hidden_sizes(config)
        for count in counts
    ]


def _knots(config: ElasticConfig) -> dict[str, list[int]]:
    """Gives the widths at which each part has a time."""
    widest: dict[str, int] = {}
    for sizes in _variants(config):
        for part, width in _parts(sizes, config):
            widest[part] = max(width, widest.get(part, 1))
    knots = {}
    for part, width in widest.items():
        steps = [step / KNOTS for step in range(1, KNOTS + 1)]
        stepped = (scaled_width(s, width) if part.endswith("neurons") else max(1, round(s * width)) for s in steps)
        knots[part] = sorted(set(stepped))
    return knots


def sizes_to_measure(config: ElasticConfig) -> list[SubnetConfig]:
    """Gives sizes that tell the times of all parts apart: one part is varied, the others wide or narrow."""
    knots = _knots(config)
    found: dict[str, SubnetConfig] = {}

    def add(sizes: list[LayerSize]) -> None:
        subnet = subnet_of(sizes, config)
        found.setdefault(size_key(subnet, config), subnet)

    for widest in _variants(config):
        parts = dict.fromkeys(part for part, _ in _parts(widest, config))
        narrowest = widest
        for part in parts:
            narrowest = _with_width(narrowest, part, knots[part][0], config)
        for base in (widest, narrowest):
            add(base)
            for part in parts:
                for width in knots[part]:
                    add(_with_width(base, part, width, config))
            for kind in dict.fromkeys(config.layer_types):
                add([next(size for size in base if config.layer_types[size.layer] == kind)])
    return list(found.values())


def _with_width(sizes: Sequence[LayerSize], part: str, width: int, config: ElasticConfig) -> list[LayerSize]:
    """Gives all layers that have a part this width of it, or all that there is."""
    axis = "intermediate_size" if part.endswith("neurons") else "num_attention_heads"
    full = config.layer_sizes()
    return [
        size._replace(**{axis: min(width, getattr(full[size.layer], axis))})
        if part in dict(_parts([size], config)[1:])
        else size
        for size in sizes
    ]


def _random_sizes(config: ElasticConfig, number: int, rng: random.Random) -> list[SubnetConfig]:
    """Gives sizes of any layers and widths; layers that share their weights are all kept, with one width."""
    subnets = []
    for _ in range(number):
        layers = [size for size in config.layer_sizes() if config.layer_groups or rng.random() < 0.7]
        sizes, widths = [], {}
        for size in layers or config.layer_sizes()[:1]:
            of_group = widths.setdefault(size.weights, (rng.random(), rng.random()))
            heads = max(1, round(of_group[0] * size.num_attention_heads))
            sizes.append(
                size._replace(
                    num_attention_heads=heads, intermediate_size=scaled_width(of_group[1], size.intermediate_size)
                )
            )
        subnets.append(subnet_of(sizes, config))
    return subnets
