"""How sizes are drawn: as points of what they achieve over what they cost, with the line of those that none beats."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .pareto import pareto_front

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, FRONT, DOT = "#1f2933", "#7b8794", "#9fb3c8", "#1769aa"
WIDTH_INCHES, HEIGHT_INCHES, DOTS_PER_INCH = 9.0, 3.8, 160


def check_drawing() -> None:
    """Checks that pictures can be drawn.

    Raises:
        ImportError: If matplotlib is not installed; says how to install it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("A picture of the front needs `matplotlib`: pip install matplotlib")


def new_figure() -> Figure:
    """Gives an empty figure of the usual size."""
    check_drawing()
    # The object API: pyplot would change the process's backend and keep the figure alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a figure as PNG."""
    # Without matplotlib's version, so that the same values give the same file.
    figure.savefig(path, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})


def draw_front(
    axes: Axes, costs: Sequence[float], values: Sequence[float], names: Sequence[str], greater_is_better: bool = True
) -> None:
    """Draws points and the line that joins those which no other one beats in both directions.

    Args:
        axes (`Axes`):
            Where to draw.
        costs (`Sequence[float]`):
            What each point costs; less is better.
        values (`Sequence[float]`):
            What each point achieves.
        names (`Sequence[str]`):
            What stands beside each point.
        greater_is_better (`bool`, defaults to `True`):
            Whether a larger value is better.
    """
    from matplotlib.patheffects import withStroke

    front = pareto_front(costs, values, greater_is_better)
    axes.plot(
        [costs[i] for i in front], [values[i] for i in front], color=FRONT, linewidth=2, zorder=1, label="Pareto front"
    )
    colors = [DOT if i in front else "white" for i in range(len(costs))]
    axes.scatter(costs, values, s=46, zorder=2, color=colors, edgecolor=DOT)
    # On the side of the points from which the line bends away.
    below = greater_is_better
    for cost, value, name in zip(costs, values, names, strict=True):
        axes.annotate(
            name,
            (cost, value),
            xytext=(6, -4 if below else 4),
            textcoords="offset points",
            va="top" if below else "bottom",
            color=INK,
            fontsize=9,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )
    axes.margins(y=0.18)
    axes.set_xlim(0, 1.2 * max(costs))  # room for the last name
    style_axes(axes)


def style_axes(axes: Axes) -> None:
    """Gives axes the look of all pictures."""
    axes.ticklabel_format(useOffset=False)
    axes.grid(color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, length=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color("#cbd2d9")
