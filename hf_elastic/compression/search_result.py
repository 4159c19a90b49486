"""What a search found: sizes by name, and the front that they were chosen from."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.subnet_elastic import LayerSize, SubnetConfig
from .budget import Budget, SizeCosts
from .front_drawing import FRONT, INK, MUTED, draw_front, new_figure, save_figure, style_axes
from .latency_table import LatencyTable, Workload
from .pareto import pareto_front
from .sizes import span

RESULT_NAME, PICTURE_NAME = "search.json", "search.png"
# Where candidates come from.
MIXED, NAMED = "mix'n'match", "named "
_AXIS_TITLES = {
    "latency": ("predicted latency in ms", 1.0),
    "flops": ("GFLOPs", 1e9),
    "memory": ("MB of weights", 1.0),
    "parameters": ("parameters in millions", 1e6),
}


@dataclass(frozen=True)
class Candidate:
    """A size that was looked at.

    Args:
        subnet (`SubnetConfig`):
            The size.
        origin (`str`):
            Where it comes from: a named size, `"by hand"`, `"mix'n'match"`, `"importance"`, `"narrowest"`, or the
            method of the search.
        costs ([`SizeCosts`]):
            What it costs.
        score (`float`):
            What it was ranked by; less is better.
        metric (`float`, *optional*):
            The true metric, of finalists; more is better.
        measured_ms (`float`, *optional*):
            Measured latency, of finalists of a search that knows latencies.
    """

    subnet: SubnetConfig
    origin: str
    costs: SizeCosts
    score: float
    metric: float | None = None
    measured_ms: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Gives the values in JSON's types."""
        values = {"subnet": self.subnet.to_dict(), "origin": self.origin, **self.costs.to_dict(), "score": self.score}
        known = {"metric": self.metric, "measured_ms": self.measured_ms}
        return {**values, **{name: value for name, value in known.items() if value is not None}}

    def row(self, name: str, sizes: Sequence[LayerSize]) -> dict[str, str]:
        """Gives the cells of a table by column; `sizes` are the layers that the size keeps."""
        row = {
            "size": name,
            "from": self.origin,
            "layers": str(len(sizes)),
            "heads": span(size.num_attention_heads for size in sizes),
            "ffn": span(size.intermediate_size for size in sizes),
            "parameters": f"{self.costs.parameters / 1e6:.2f} M",
            "MFLOPs": f"{self.costs.flops / 1e6:.0f}",
        }
        if self.costs.milliseconds is not None:
            row["ms"] = f"{self.costs.milliseconds:.2f}"
            row["measured"] = "" if self.measured_ms is None else f"{self.measured_ms:.2f}"
        return row | {"score": f"{self.score:.4f}", "metric": "" if self.metric is None else f"{self.metric:.4f}"}


@dataclass(frozen=True)
class SearchResult(Mapping[str, SubnetConfig]):
    """The found sizes by name, as `export_family` takes them, and how they came about.

    Args:
        found (`dict[str, Candidate]`):
            What was chosen, the best first.
        candidates (`tuple[Candidate, ...]`):
            All sizes that were scored.
        cost (`str`):
            The kind of cost that scores were weighed against.
        budget ([`Budget`]):
            What a size may cost.
        workload ([`Workload`]):
            What FLOPs and latencies are of.
        seconds (`float`):
            How long it took.
        num_evaluated (`int`):
            Sizes that were scored in this run, and not read from a storage.
        table ([`LatencyTable`], *optional*):
            What latencies were predicted from.
        processor (`str`):
            What was measured on.
        member_ms (`float`, *optional*):
            Measured latency of the first found size as a model of its own.
        ending (`str`, *optional*):
            What ended it early.
    """

    found: dict[str, Candidate]
    candidates: tuple[Candidate, ...]
    cost: str
    budget: Budget
    workload: Workload
    seconds: float
    num_evaluated: int
    table: LatencyTable | None = None
    processor: str = ""
    member_ms: float | None = None
    ending: str | None = None

    def __getitem__(self, name: str) -> SubnetConfig:
        return self.found[name].subnet

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @property
    def best(self) -> Candidate:
        """The finalist with the best metric that keeps the budget."""
        return next(iter(self.found.values()))

    @property
    def finalists(self) -> list[Candidate]:
        """The sizes whose true metric is known, by ascending cost."""
        known = [candidate for candidate in self.candidates if candidate.metric is not None]
        return sorted(known, key=lambda candidate: candidate.costs.get(self.cost))

    @property
    def front(self) -> list[Candidate]:
        """The finalists that no other one beats, by ascending cost."""
        return metric_front(self.finalists, self.cost)

    @property
    def score_front(self) -> list[Candidate]:
        """The sizes that no other one beats in cost and score, by ascending cost."""
        return score_front(self.candidates, self.cost)

    @property
    def baseline(self) -> list[Candidate]:
        """The same of Mix'n'Match alone, which needs no search."""
        mixed = [candidate for candidate in self.candidates if candidate.origin.startswith((MIXED, NAMED))]
        return score_front(mixed, self.cost)

    def table_rows(self, config: ElasticConfig) -> list[dict[str, str]]:
        """Gives a row for each size on the front and each found one, with the cells by column.

        Args:
            config ([`ElasticConfig`]):
                Configuration of the supernet.
        """
        names = {id(candidate): name for name, candidate in self.found.items()}
        shown = {id(candidate): candidate for candidate in [*self.front, *self.found.values()]}
        ordered = sorted(shown.values(), key=lambda candidate: candidate.costs.get(self.cost))
        return [c.row(names.get(id(c), ""), c.subnet.layer_sizes(config)) for c in ordered]

    def to_dict(self) -> dict[str, Any]:
        """Gives everything in JSON's types."""
        return {
            "found": {name: candidate.to_dict() for name, candidate in self.found.items()},
            "front": [candidate.to_dict() for candidate in self.front],
            "mix_n_match": [candidate.to_dict() for candidate in self.baseline],
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "cost": self.cost,
            "budget": {name: value for name, value in asdict(self.budget).items() if value is not None},
            "workload": asdict(self.workload),
            "processor": self.processor,
            "member_ms": self.member_ms,
            "latency_errors": self.table and list(self.table.errors),
            "seconds": round(self.seconds, 2),
            "num_evaluated": self.num_evaluated,
            "ending": self.ending,
        }

    def save(self, folder: str | Path) -> None:
        """Writes `search.json` and the picture `search.png` into a folder.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RESULT_NAME).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        self.draw(folder / PICTURE_NAME)

    def draw(self, path: str | Path) -> None:
        """Draws as PNG the finalists' metric, and all scores beside Mix'n'Match, over the cost.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        title, unit = _AXIS_TITLES[self.cost]
        figure = new_figure()
        left, right = figure.subplots(1, 2)
        names = {id(candidate): name for name, candidate in self.found.items()}
        finalists = self.finalists
        costs = [candidate.costs.get(self.cost) / unit for candidate in finalists]
        labels = [names.get(id(candidate), "") for candidate in finalists]
        draw_front(left, costs, [candidate.metric for candidate in finalists], labels)
        self._draw_scores(right, unit)
        for axes, value in ((left, "metric"), (right, "score (less is better)")):
            axes.set_xlabel(title, color=INK)
            axes.set_ylabel(value, color=INK)
        save_figure(figure, path)

    def _draw_scores(self, axes: Any, unit: float) -> None:
        def points(candidates: list[Candidate]) -> tuple[list[float], list[float]]:
            return [c.costs.get(self.cost) / unit for c in candidates], [c.score for c in candidates]

        axes.scatter(*points(list(self.candidates)), s=12, color=FRONT, zorder=1, label="all that were scored")
        axes.plot(*points(self.baseline), color=MUTED, marker="o", markersize=4, zorder=2, label="Mix'n'Match")
        axes.plot(*points(self.score_front), color=INK, marker="o", markersize=4, zorder=3, label="front")
        axes.legend(loc="upper right", frameon=False, labelcolor=MUTED)
        style_axes(axes)


def metric_front(candidates: Sequence[Candidate], cost: str) -> list[Candidate]:
    """Gives the candidates that no other one beats in cost and metric, by ascending cost."""
    costs = [candidate.costs.get(cost) for candidate in candidates]
    return [candidates[i] for i in pareto_front(costs, [candidate.metric for candidate in candidates])]


def score_front(candidates: Sequence[Candidate], cost: str) -> list[Candidate]:
    """Gives the candidates that no other one beats in cost and score, by ascending cost."""
    costs = [candidate.costs.get(cost) for candidate in candidates]
    return [candidates[i] for i in pareto_front(costs, [c.score for c in candidates], greater_is_better=False)]
