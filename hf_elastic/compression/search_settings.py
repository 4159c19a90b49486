"""How a search goes about it."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from .budget import COSTS
from .cost import check_at_least
from .latency_table import Workload
from .search_space import SPACES

METHODS = ("nsga2", "tpe")


@dataclass(frozen=True)
class SearchSettings:
    """Settings of [`~hf_elastic.search`].

    Args:
        choices (`str`, defaults to `"layers"`):
            What is chosen: the widths of each layer and which are kept (`"layers"`), or the widths of all layers and
            their number (`"model"`).
        method (`str`, defaults to `"nsga2"`):
            Optuna's sampler: `"nsga2"` (Deb et al. 2002, https://doi.org/10.1109/4235.996017) or `"tpe"` (Ozaki et al.
            2022, https://doi.org/10.1613/jair.1.13188).
        cost (`str`, *optional*):
            What a better score is weighed against: `"latency"`, `"flops"`, `"memory"` or `"parameters"`. The first of
            these that is limited by default, or FLOPs.
        steps (`int`, defaults to 8):
            Widths of a layer, see [`SearchSpace`].
        num_candidates (`int`, defaults to 200):
            Sizes that are scored at most; those that the search begins with are among them.
        num_finalists (`int`, defaults to 8):
            Sizes of these that the true metric decides among.
        workload ([`Workload`]):
            What FLOPs and latency are of.
        max_minutes (`float`, *optional*):
            Time that all of it may take, but for measuring latencies: three quarters of it to score candidates. At
            least one is scored, and one finalist.
        storage (`str` or `Path`, *optional*):
            Where scores are kept, so that a search that was stopped goes on, and another budget need not score the
            same sizes again: a file (Optuna's journal), or a database as a URL, e.g. `"sqlite:///search.db"`. The
            functions then need an attribute `fingerprint`, a text that tells their data and metric.
        seed (`int`, defaults to 42):
            Seed of what is drawn.

    Raises:
        ValueError: If a value is unknown or out of range.
    """

    choices: str = "layers"
    method: str = "nsga2"
    cost: str | None = None
    steps: int = 8
    num_candidates: int = 200
    num_finalists: int = 8
    workload: Workload = field(default_factory=Workload)
    max_minutes: float | None = None
    storage: str | Path | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        possible = {"choices": SPACES, "method": METHODS, "cost": (None, *COSTS)}
        for name, values in possible.items():
            if getattr(self, name) not in values:
                known = ", ".join(str(value) for value in values if value is not None)
                raise ValueError(f"{name}={getattr(self, name)!r} is unknown: possible are {known}.")
        check_at_least(1, steps=self.steps, num_candidates=self.num_candidates, num_finalists=self.num_finalists)
        if self.max_minutes is not None and not 0 < self.max_minutes < math.inf:
            raise ValueError(f"max_minutes={self.max_minutes} must be positive and finite, or None for no limit.")
