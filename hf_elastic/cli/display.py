"""What the commands show: phases of a long run, and tables."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from ..hub.family import Family

console = Console(highlight=False)

_PHASES = {
    "data": "Read and tokenise the data",
    "check": "Check everything that the training needs",
    "fine-tune": "Fine-tune the full model",
    "rank": "Rank heads and neurons by importance",
    "co-train": "Train all sizes together",
    "search": "Search sizes within the budget",
    "evaluate": "Evaluate every size",
    "predict": "Predict every split with every size",
    "export": "Export the family",
}


def show_phase(phase: str) -> None:
    """Announces a phase of a training run by its name."""
    console.rule(f"[bold]{_PHASES[phase]}", align="left")


def show_table(rows: Iterable[Mapping[str, str]], title: str | None = None, texts: Collection[str] = ()) -> None:
    """Shows rows as a table: the first column aligned left, the others right.

    Args:
        rows: Cells by column title, the same titles in every row.
        title: What stands above.
        texts: Further columns that are aligned left.
    """
    rows = list(rows)
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(rows[0]):
        # A narrow terminal breaks words rather than leaving out their ends.
        table.add_column(column, justify="right" if number and column not in texts else "left", overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)


def conditions(family: "Family") -> str:
    """Says of what the table of a family gives FLOPs and milliseconds."""
    return f"FLOPs and ms are those of one text of {family.manifest.sequence_length} tokens."


def metric_rows(metrics: Mapping[str, Mapping[str, float]]) -> list[dict[str, str]]:
    """Gives one row per size for a table of metrics."""
    return [{"size": size, **{name: f"{value:.4f}" for name, value in of.items()}} for size, of in metrics.items()]
