"""Tasks of a benchmark, one after the other, for several seeds or folds: what is done stays done.

Each training has a folder of its own, `<task>/seed-<seed>` or `<task>/seed-<seed>-fold-<number>`, whose result file is
written last. A run that was stopped goes on with what has no result, and a task that fails does not stop the others.
"""

import dataclasses
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.utils import logging

from ..recipes import DEFAULT_SUBNETS, TrainingSettings
from .benchmarks import find_task
from .cross_validation import fold
from .task import Task
from .task_data import read_task
from .task_result import TaskResult
from .task_training import answer_task, train_on_task

if TYPE_CHECKING:
    from .task_data import TaskSource

logger = logging.get_logger(__name__)

SUPERNET_FOLDER, PREDICTIONS_FOLDER, ERROR_NAME = "supernet", "predictions", "error.txt"
# What fine-tuning on the benchmarks' tasks takes, where neither the task nor the caller says otherwise.
TASK_SETTINGS: dict[str, Any] = {
    "batch_size": 32,
    "finetune_epochs": 3.0,
    "cotrain_epochs": 3.0,
    "head_lr_multiplier": 5.0,
}


@dataclass(frozen=True)
class BenchmarkRequest:
    """What is to be run.

    Args:
        benchmark: `"glue"` or `"super_glue"`.
        source: Folder or Hub id of the checkpoint that every task begins with.
        new_head: Whether only the encoder of the source is taken over, see [`train_on_task`].
        data: Where the rows are, see [`read_task`].
        sizes: Multipliers of [`SubnetConfig.scaled`] by the name of each size; None for those that the supernet names.
        settings: What differs from the settings that suit each task, by the names of [`TrainingSettings`] and of
            [`ElasticTrainingArguments`].
        seeds: Seeds, each of a training of its own.
        folds: Folds of a cross-validation on the training rows; 0 scores the splits of the benchmark.
        held_out_fraction: See [`train_on_task`].
        robustness: Whether to score every size on perturbed texts as well, see [`TaskRun.robustness`].
    """

    benchmark: str
    source: str
    new_head: bool = False
    data: "TaskSource" = None
    sizes: Mapping[str, Mapping[str, float]] | None = field(default_factory=lambda: dict(DEFAULT_SUBNETS))
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] = (42,)
    folds: int = 0
    held_out_fraction: float = 0.0
    robustness: bool = False

    def settings_for(self, task: Task, seed: int) -> TrainingSettings:
        """Gives the training settings of a task: the common ones, then the task's, then the request's.

        The sizes that a supernet names itself have been trained in its order of units: it is not ranked again.
        """
        in_order = {"rank_examples": 0} if self.sizes is None else {}
        values = {**TASK_SETTINGS, **in_order, **task.settings, **self.settings, "seed": seed}
        return TrainingSettings().with_arguments(values)

    def described(self, task: Task, seed: int) -> dict[str, Any]:
        """Gives what a result has to agree with to answer the request, in plain values."""
        return {
            "source": str(self.source),
            "data": None if self.data is None else str(self.data),
            "new_head": self.new_head,
            "sizes": None if self.sizes is None else {name: dict(of) for name, of in self.sizes.items()},
            "settings": dataclasses.asdict(self.settings_for(task, seed)),
            "folds": self.folds,
            "held_out_fraction": self.held_out_fraction,
            "robustness": self.robustness,
        }


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
        names: Names of the tasks. Diagnostics are answered by the model of another task, which has to be among them or
            done before.
        output_dir: The folder to write.
        on_training: Called with the name of each training's folder when it begins.
        on_phase: As [`train_on_task`] takes it.

    Returns:
        All results. With a single training, its error is raised instead.

    Raises:
        ValueError: If a task is unknown, settings do not fit, or a folder has a result that other settings gave.
    """
    output_dir = Path(output_dir)
    tasks = [find_task(request.benchmark, name) for name in names]
    trained, diagnostics = [t for t in tasks if t.model_of is None], [t for t in tasks if t.model_of is not None]
    if diagnostics and request.folds:
        raise ValueError(
            f"{diagnostics[0].name} is a diagnostic without training rows: leave it out, or give folds=0."
        )
    trainings = [(task, seed, number) for task in [*trained, *diagnostics] for seed, number in _parts(request)]
    for task, seed, number in trainings:  # before the first begins
        _check_answers(request, task, seed, training_folder(output_dir, task.name, seed, number))
    results, failures = [], {}
    for task, seed, number in trainings:
        folder = training_folder(output_dir, task.name, seed, number)
        result = TaskResult.load(folder)
        if result is None:
            name = folder.relative_to(output_dir).as_posix()
            if on_training is not None:
                on_training(name)
            try:
                result = _run(request, task, seed, number, folder, output_dir, on_phase)
            except Exception as error:
                if len(trainings) == 1:
                    raise
                failures[name] = f"{type(error).__name__}: {error}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / ERROR_NAME).write_text(traceback.format_exc(), encoding="utf-8")
                logger.error(f"{name} failed, and the others go on: {failures[name]}")
                continue
        results.append(result)
    return BenchmarkRun(results, failures)


def _parts(request: BenchmarkRequest) -> Iterator[tuple[int, int | None]]:
    for seed in request.seeds:
        yield from ((seed, number) for number in (range(request.folds) if request.folds else (None,)))


def training_folder(output_dir: str | Path, task: str, seed: int, number: int | None = None) -> Path:
    """Gives the folder of a training.

    Args:
        output_dir: Folder of the run.
        task: Name of the task.
        seed: Seed of the training.
        number: Number of the fold of a cross-validation.
    """
    return Path(output_dir) / task / (f"seed-{seed}" if number is None else f"seed-{seed}-fold-{number}")


def _check_answers(request: BenchmarkRequest, task: Task, seed: int, folder: Path) -> None:
    """Raises a ValueError if there is a result that other settings gave."""
    wanted, result = request.described(task, seed), TaskResult.load(folder)
    if result is None or result.request == wanted:
        return
    flat_wanted, flat_found = _flat(wanted), _flat(result.request)
    name = next(name for name in {**flat_wanted, **flat_found} if flat_wanted.get(name) != flat_found.get(name))
    raise ValueError(
        f"{folder} has the result of a run with {name}={flat_found.get(name)!r}, and now it is "
        f"{flat_wanted.get(name)!r}. Give another folder for the results, or remove that one."
    )


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    settings = values.get("settings", {})
    return {**{name: value for name, value in values.items() if name != "settings"}, **settings}


def _run(
    request: BenchmarkRequest,
    task: Task,
    seed: int,
    number: int | None,
    folder: Path,
    output_dir: Path,
    on_phase: Callable[[str], None] | None,
) -> TaskResult:
    data = read_task(task, request.data, seed=seed)
    if task.model_of is not None:
        model_folder = training_folder(output_dir, task.model_of, seed) / SUPERNET_FOLDER
        run = answer_task(model_folder, data)
    else:
        run = train_on_task(
            request.source,
            data if number is None else fold(data, number, request.folds, seed),
            request.settings_for(task, seed),
            request.sizes,
            new_head=request.new_head,
            held_out_fraction=request.held_out_fraction,
            on_phase=on_phase,
        )
        if number is None:
            run.save_supernet(folder / SUPERNET_FOLDER)
    for split, by_size in run.predictions.items():
        for size, predictions in by_size.items():
            predictions.save(folder / PREDICTIONS_FOLDER / split / f"{size}.npz")
    result = run.result(request.described(task, seed), seed, number)
    if request.robustness and result.scores:
        result = dataclasses.replace(result, robustness=run.robustness())
    result.save(folder)
    (folder / ERROR_NAME).unlink(missing_ok=True)
    return result
