"""From the scores of tasks to the one figure of GLUE or SuperGLUE, which says what of the benchmark is not in it.

All tasks weigh the same, and so do the metrics within a task: Wang et al. 2019, https://arxiv.org/abs/1804.07461,
section 3.4, and Wang et al. 2019, https://arxiv.org/abs/1905.00537.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from .benchmarks import BENCHMARKS, find_task
from .task import Task


@dataclass(frozen=True)
class BenchmarkAverage:
    """Average of a benchmark, or of a part of it.

    Args:
        value: Mean of the tasks' scores.
        tasks: The tasks that are in it.
        missing: The benchmark's tasks that are not, or have not all their splits scored.
    """

    value: float
    tasks: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether it is the benchmark's own figure."""
        return not self.missing


def mean_score(task: Task, scores: Mapping[str, float]) -> float:
    """Gives the one figure of a task: the unweighted mean of its metrics.

    Args:
        task: The task.
        scores: What [`score`] gave.

    Raises:
        ValueError: If a metric is not there.
    """
    absent = [name for name in task.metrics if name not in scores]
    if absent:
        raise ValueError(f"The scores of {task.name}, {', '.join(scores)}, lack {', '.join(absent)}.")
    return fmean(scores[name] for name in task.metrics)


def benchmark_average(
    benchmark: str, scores_by_task: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> BenchmarkAverage:
    """Averages over the tasks of a benchmark.

    GLUE has nine tasks: MNLI is one, the mean of matched and mismatched. SuperGLUE has eight: `wsc` and `wsc.fixed`
    are one, of which `wsc` counts where both are there. Diagnostics may be among the scores, and are left out.

    Args:
        benchmark: `"glue"` or `"super_glue"`.
        scores_by_task: For each task the scores of each of its validation splits.

    Returns:
        The mean over the tasks that are there, with those that are missing. A task with several splits is there once
        all of them are.

    Raises:
        ValueError: If a task or split is not the benchmark's, a metric is not there, or no task is.

    Example:
        >>> benchmark_average("super_glue", {"cb": {"validation": {"accuracy": 0.8, "f1_macro": 0.6}}}).value
        0.7
    """
    means: dict[str, float] = {}
    for name, scores_by_split in scores_by_task.items():
        task = find_task(benchmark, name)
        if task.model_of is not None:
            continue
        unknown = [split for split in scores_by_split if split not in task.validation_splits]
        if unknown:
            raise ValueError(
                f"The average of {benchmark} takes {', '.join(task.validation_splits)} of {name}, not "
                f"{', '.join(unknown)}."
            )
        if len(scores_by_split) == len(task.validation_splits):
            means[name] = fmean(mean_score(task, scores) for scores in scores_by_split.values())
    if not means:
        raise ValueError(f"No task of {benchmark} is scored on all its validation splits: nothing to average.")
    tasks = BENCHMARKS[benchmark]
    forms = {name: tasks[name].form_of for name in means if tasks[name].form_of is not None}
    for form, original in forms.items():
        if original in means:
            del means[form]
    present = {forms.get(name, name) for name in means}
    missing = [
        name for name, task in tasks.items() if task.model_of is None and task.form_of is None and name not in present
    ]
    return BenchmarkAverage(fmean(means.values()), tuple(means), tuple(missing))
