"""What a size may cost, and what it costs."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import SubnetConfig
from .cost import count_flops, count_parameters, weight_megabytes
from .latency_table import LatencyTable, Workload

# Each kind of cost with its field in `SizeCosts`, its limit in `Budget`, and how it is said.
COSTS = {
    "latency": ("milliseconds", "max_latency_ms", "{:.2f} ms"),
    "flops": ("flops", "max_flops", "{:,} FLOPs"),
    "memory": ("megabytes", "max_memory_mb", "{:.2f} MB"),
    "parameters": ("parameters", "max_params", "{:,} parameters"),
}


@dataclass(frozen=True)
class SizeCosts:
    """What a size costs as a model of its own.

    Args:
        parameters (`int`):
            All parameters.
        flops (`int`):
            Floating point operations of one pass.
        megabytes (`float`):
            Its weights, in 10^6 bytes.
        milliseconds (`float`, *optional*):
            Predicted latency of one pass, where a latency table is at hand.
    """

    parameters: int
    flops: int
    megabytes: float
    milliseconds: float | None = None

    @classmethod
    def of(
        cls,
        model: ElasticPreTrainedModel,
        subnet: SubnetConfig,
        workload: Workload,
        table: LatencyTable | None = None,
    ) -> "SizeCosts":
        """Works out the costs of a size.

        Args:
            model ([`ElasticPreTrainedModel`]):
                The supernet.
            subnet (`SubnetConfig`):
                The size.
            workload ([`Workload`]):
                What a pass is.
            table ([`LatencyTable`], *optional*):
                What its latency is predicted from.
        """
        return cls(
            parameters=count_parameters(model, subnet).total,
            flops=count_flops(model, subnet, workload.sequence_length, workload.batch_size),
            megabytes=weight_megabytes(model, subnet),
            milliseconds=table and table.predict(subnet, model.config),
        )

    def get(self, kind: str) -> float:
        """Gives one of `COSTS`."""
        return getattr(self, COSTS[kind][0])

    def to_dict(self) -> dict[str, Any]:
        """Gives the numbers that are known, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        known = {kind: self.get(kind) for kind in COSTS}
        return ", ".join(COSTS[kind][2].format(value) for kind, value in known.items() if value is not None)


@dataclass(frozen=True)
class Budget:
    """Limits that a size has to keep; None is no limit.

    Args:
        max_params (`int`, *optional*):
            Parameters, embeddings included.
        max_flops (`int`, *optional*):
            Floating point operations of one pass.
        max_latency_ms (`float`, *optional*):
            Milliseconds of one pass on this machine.
        max_memory_mb (`float`, *optional*):
            The weights, in 10^6 bytes: what the member takes on disk and, without activations, in memory.

    Raises:
        TypeError: If a limit is no number.
        ValueError: If it is not positive and finite.
    """

    max_params: int | None = None
    max_flops: int | None = None
    max_latency_ms: float | None = None
    max_memory_mb: float | None = None

    def __post_init__(self) -> None:
        for known in fields(self):
            value = getattr(self, known.name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{known.name}={value!r}: expected a number, or None for no limit.")
            if not 0 < value < math.inf:
                raise ValueError(f"{known.name}={value!r} must be positive and finite, or None for no limit.")

    @property
    def kinds(self) -> list[str]:
        """The kinds of cost that are limited, in the order of `COSTS`."""
        return [kind for kind, (_, limit, _) in COSTS.items() if getattr(self, limit) is not None]

    def without_latency(self) -> "Budget":
        """Gives the limits that can be checked without measuring."""
        return Budget(self.max_params, self.max_flops, None, self.max_memory_mb)

    def use(self, costs: SizeCosts) -> float:
        """Gives the largest share of a limit that costs use up, more than 1 if they exceed it; 0 without limits."""
        return max((costs.get(kind) / getattr(self, COSTS[kind][1]) for kind in self.kinds), default=0.0)

    def allows(self, costs: SizeCosts) -> bool:
        """Whether costs keep all limits."""
        return self.use(costs) <= 1

    def check_reachable(self, costs: Mapping[str, SizeCosts]) -> None:
        """Checks that some size keeps the limits.

        Args:
            costs (`Mapping[str, SizeCosts]`):
                Costs of the smallest sizes, by what they are called.

        Raises:
            ValueError: If none does; names the one that comes nearest, and its figures.
        """
        nearest = min(costs, key=lambda name: self.use(costs[name]))
        if not self.allows(costs[nearest]):
            raise ValueError(
                f"No size keeps {self}: the nearest is {nearest} with {costs[nearest]}. Allow as much, name a smaller "
                "size and train it, or convert a smaller checkpoint."
            )

    def __str__(self) -> str:
        limits = {COSTS[kind][1]: getattr(self, COSTS[kind][1]) for kind in self.kinds}
        return ", ".join(f"{name}={value}" for name, value in limits.items()) or "no limit"
