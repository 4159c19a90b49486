"""The Pareto picture: what each size achieves against what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .manifest import Manifest, Member

if TYPE_CHECKING:
    from matplotlib.axes import Axes


INK, MUTED, FRONT, DOT = "#1f2933", "#7b8794", "#9fb3c8", "#1769aa"
WIDTH_INCHES, HEIGHT_INCHES, DOTS_PER_INCH = 9.0, 3.8, 160


def draw_pareto(manifest: Manifest, path: Path) -> None:
    """Draws the primary metric against latency and against the number of parameters, as PNG.

    Members that lack the metric are left out. The line joins the sizes that no other one beats in both directions.

    Args:
        manifest (`Manifest`):
            The family; its `primary_metric` must be set.
        path (`Path`):
            The file to write.
    """
    # The object API: pyplot would change the process's backend and keep the figure alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    metric = manifest.primary_metric
    members = [member for member in manifest.members if metric in member.metrics]
    latency = members[0].latency
    threads = f", {latency.threads} thread{'s' if latency.threads > 1 else ''}" if latency.device == "cpu" else ""
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_panel(left, manifest, members, [member.latency.milliseconds for member in members])
    _draw_panel(right, manifest, members, [member.parameters.total / 1e6 for member in members])
    left.set_xlabel(f"latency in ms ({latency.device}{threads})", color=INK)
    right.set_xlabel("parameters in millions", color=INK)
    left.set_ylabel(metric, color=INK)
    left.legend(loc="lower right" if manifest.greater_is_better else "upper right", frameon=False, labelcolor=MUTED)
    figure.suptitle(f"{manifest.name}: {metric} of each size", color=INK, fontsize=11)
    # Without matplotlib's version, so that the same family gives the same file.
    figure.savefig(path, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})


def pareto_front(costs: Sequence[float], values: Sequence[float], greater_is_better: bool = True) -> list[int]:
    """Finds the points that no other point beats: none is at least as good at no more cost, and better in one of them.

    Args:
        costs (`Sequence[float]`):
            What each point costs; less is better.
        values (`Sequence[float]`):
            What each point achieves.
        greater_is_better (`bool`, defaults to `True`):
            Whether a larger value is better.

    Returns:
        `list[int]`: Indices of the points, by ascending cost.
    """
    gains = [value if greater_is_better else -value for value in values]
    front: list[int] = []
    for i in sorted(range(len(costs)), key=lambda i: (costs[i], -gains[i])):
        if not front or gains[i] > gains[front[-1]]:
            front.append(i)
    return front


def _draw_panel(axes: Axes, manifest: Manifest, members: Sequence[Member], costs: Sequence[float]) -> None:
    from matplotlib.patheffects import withStroke

    values = [member.metrics[manifest.primary_metric] for member in members]
    front = pareto_front(costs, values, manifest.greater_is_better)
    axes.plot(
        [costs[i] for i in front], [values[i] for i in front], color=FRONT, linewidth=2, zorder=1, label="Pareto front"
    )
    colors = [DOT if i in front else "white" for i in range(len(costs))]
    axes.scatter(costs, values, s=46, zorder=2, color=colors, edgecolor=DOT)
    # On the side of the points from which the line bends away.
    below = manifest.greater_is_better
    for cost, value, member in zip(costs, values, members, strict=True):
        axes.annotate(
            member.name,
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
    axes.ticklabel_format(useOffset=False)
    axes.grid(color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, length=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color("#cbd2d9")
