"""The Pareto picture: what each size achieves against what it costs."""

from pathlib import Path

from ..compression.front_drawing import INK, MUTED, draw_front, new_figure, save_figure
from .manifest import Manifest


def draw_pareto(manifest: Manifest, path: Path) -> None:
    """Draws the primary metric against latency and against the number of parameters, as PNG.

    Members that lack the metric are left out. The line joins the sizes that no other one beats in both directions.

    Args:
        manifest (`Manifest`):
            The family; its `primary_metric` must be set.
        path (`Path`):
            The file to write.
    """
    metric = manifest.primary_metric
    members = [member for member in manifest.members if metric in member.metrics]
    values, names = [member.metrics[metric] for member in members], [member.name for member in members]
    latency = members[0].latency
    threads = f", {latency.threads} thread{'s' if latency.threads > 1 else ''}" if latency.device == "cpu" else ""
    figure = new_figure()
    left, right = figure.subplots(1, 2, sharey=True)
    milliseconds = [member.latency.milliseconds for member in members]
    millions = [member.parameters.total / 1e6 for member in members]
    draw_front(left, milliseconds, values, names, manifest.greater_is_better)
    draw_front(right, millions, values, names, manifest.greater_is_better)
    left.set_xlabel(f"latency in ms ({latency.device}{threads})", color=INK)
    right.set_xlabel("parameters in millions", color=INK)
    left.set_ylabel(metric, color=INK)
    left.legend(loc="lower right" if manifest.greater_is_better else "upper right", frameon=False, labelcolor=MUTED)
    figure.suptitle(f"{manifest.name}: {metric} of each size", color=INK, fontsize=11)
    save_figure(figure, path)
