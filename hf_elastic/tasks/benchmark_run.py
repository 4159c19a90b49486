"""Tasks of a benchmark, one after the other, for several seeds or folds: what is done stays done.

Each training has a folder of its own, `<task>/seed-<seed>` or `<task>/seed-<seed>-fold-<number>`, whose result file is
written last. A run that was stopped goes on with what has no result, and a task that fails does not stop the others.
"""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging

from .benchmark_request import BenchmarkRequest
from .benchmark_training import BenchmarkTraining
from .benchmarks import named_tasks
from .task import Task
from .task_data import read_other_rows
from .task_result import TaskResult

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class BenchmarkRun:
    """What a run gives.

    Args:
        results: The results, old and new, in the order of tasks and seeds.
        failures: The error of each training that failed, by the name of its folder.
    """

    results: list[TaskResult]
    failures: dict[str, str]


def run_benchmark(
    request: BenchmarkRequest,
    names: Sequence[str],
    output_dir: str | Path,
    on_training: Callable[[str], None] | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> BenchmarkRun:
    """Trains and evaluates all sizes on tasks of a benchmark.

    Args:
        request: What is to be run.
        names: Names of the tasks, see [`named_tasks`]. Diagnostics are answered by the model of another task, which
            has to be among them or done before.
        output_dir: The folder to write.
        on_training: Called with the name of each training's folder when it begins.
        on_phase: As [`train_on_task`] takes it.

    Returns:
        All results. With a single training, its error is raised instead.

    Raises:
        ValueError: If a task is unknown, settings do not fit, or a folder has a result that other settings gave.
    """
    output_dir = Path(output_dir)
    tasks = named_tasks(request.benchmark, names, with_diagnostics=not request.folds)
    trained, diagnostics = [t for t in tasks if t.model_of is None], [t for t in tasks if t.model_of is not None]
    _check_tasks(request, trained, diagnostics)
    together = tuple(trained) if request.mixing is not None else ()
    trainings = [
        BenchmarkTraining(request, task, seed, number, output_dir, together)
        for task in [*trained, *diagnostics]
        for seed in dict.fromkeys(request.seeds)
        for number in (range(request.folds) if request.folds else [None])
    ]
    for training in trainings:  # before the first begins
        training.checked_result()
        if training.trained.task not in trained:
            training.check_model()
    results, failures = [], {}
    for training in trainings:
        if training.name_of_all in failures:  # which has failed for all its tasks
            continue
        try:
            results.append(training.result(on_training, on_phase))
        except Exception as error:
            if len({each.name_of_all for each in trainings}) == 1:
                raise
            failures[training.name_of_all] = f"{type(error).__name__}: {error}"
            training.keep_error(traceback.format_exc())
            logger.error(f"{training.name_of_all} failed, and the others go on: {failures[training.name_of_all]}")
    return BenchmarkRun(results, failures)


def _check_tasks(request: BenchmarkRequest, trained: Sequence[Task], diagnostics: Sequence[Task]) -> None:
    names = ", ".join(task.name for task in trained)
    if request.folds and diagnostics:
        raise ValueError(
            f"{diagnostics[0].name} is a diagnostic without training rows: leave it out, or give folds=0."
        )
    if request.mixing is not None and len(trained) < 2:
        raise ValueError(f"mixing is of several tasks, and there is {names or 'none'}: name more, or leave it out.")
    if request.out_of_domain and len(trained) != 1:
        raise ValueError(
            f"out_of_domain={', '.join(request.out_of_domain)} has the columns of one task, and there is "
            f"{names or 'none'}: run that task by itself."
        )
    for name, rows in request.out_of_domain.items():
        read_other_rows(trained[0], rows, name)
