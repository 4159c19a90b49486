"""What `evaluate`, and so the Hub, calls the metrics that go by more precise names here."""

from typing import Any, NamedTuple


class MetricType(NamedTuple):
    """A metric of `evaluate`: its identifier, and the arguments of `compute`, if it takes others than the defaults."""

    name: str
    args: dict[str, Any] | None = None


_TYPES = {
    "f1_macro": MetricType("f1", {"average": "macro"}),
    "f1_micro": MetricType("f1", {"average": "micro"}),
    "f1_answers": MetricType("f1"),
    "pearson": MetricType("pearsonr"),
    "spearman": MetricType("spearmanr"),
}


def metric_type(name: str) -> MetricType:
    """Gives what the Hub knows a metric by: most have the same name there.

    Args:
        name: Its name in tables and reports.
    """
    return _TYPES.get(name, MetricType(name))
