"""The family as a table: one row per size, ready for a terminal or a card."""

from collections.abc import Sequence

from .formats import CHECKPOINT_FORMAT
from .manifest import Manifest

UNKNOWN = "–"


def family_table(manifest: Manifest) -> list[dict[str, str]]:
    """Gives one row per member, largest first, keyed by column titles.

    Returns:
        `list[dict[str, str]]`: Columns `size`, `parameters` and `encoder` (the encoder's share of them), `MB` (10^6
        bytes on disk), `FLOPs` and `ms` (of a forward pass over one sequence), and the metrics, the primary one first.
    """
    metrics = metric_names(manifest)
    return [
        {
            "size": member.name,
            "parameters": with_unit(member.parameters.total),
            "encoder": with_unit(member.parameters.encoder),
            "MB": megabytes(member.size_on_disk[CHECKPOINT_FORMAT]),
            "FLOPs": with_unit(member.flops),
            "ms": f"{member.latency.milliseconds:.1f}",
            **{name: metric_value(member.metrics[name]) if name in member.metrics else UNKNOWN for name in metrics},
        }
        for member in manifest.members
    ]


def markdown_table(rows: Sequence[dict[str, str]]) -> str:
    """Writes rows as a Markdown table, the first column aligned left and the others right."""
    titles = list(rows[0])
    lines = [titles, [":--", *["--:"] * (len(titles) - 1)], *[list(row.values()) for row in rows]]
    return "\n".join("| " + " | ".join(map(table_cell, line)) + " |" for line in lines)


def table_cell(value: object) -> str:
    """Writes a value so that it stays within its cell of a Markdown table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def metric_names(manifest: Manifest) -> list[str]:
    """Gives the names of all metrics that any member has, the primary one first."""
    names = dict.fromkeys(name for member in manifest.members for name in member.metrics)
    return sorted(names, key=lambda name: name != manifest.primary_metric)


def with_unit(number: int) -> str:
    """Shortens a count to three digits and a unit: 22713216 gives `22.7 M`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # Numbers that three digits would round up to the next unit are written in it.
        if number >= size * 0.9995:
            scaled = number / size
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {unit}"
    return str(number)


def megabytes(size: int) -> str:
    """Writes bytes as 10^6 bytes: 90864192 gives `90.9`."""
    return f"{size / 1e6:.1f}" if size >= 1e6 else f"{size / 1e6:.3f}"


def metric_value(value: float) -> str:
    """Writes a metric with four decimals."""
    return f"{value:.4f}"
