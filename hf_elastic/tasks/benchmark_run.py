"""Tasks of a benchmark, one after the other, for several seeds or folds: what is done stays done.

Each training has a folder of its own, `<task>/seed-<seed>` or `<task>/seed-<seed>-fold-<number>`, whose result file is
written last. A run that was stopped goes on with what has no result, and a task that fails does not stop the others.
"""

import dataclasses
import hashlib
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.utils import logging

from ..recipes import DEFAULT_SUBNETS, TrainingSettings
from ..training.data_fingerprint import DataFingerprint
from ..training.provenance import RUN_NAME
from .benchmarks import find_task, named_tasks
from .cross_validation import fold
from .task import Task
from .task_data import TaskData, read_task
from .task_result import TaskResult
from .task_training import answer_task, train_on_task

if TYPE_CHECKING:
    from .task_data import TaskSource

logger = logging.get_logger(__name__)

SUPERNET_FOLDER, PREDICTIONS_FOLDER, ERROR_NAME = "supernet", "predictions", "error.txt"
# What a checkpoint is told by.
_CHECKPOINT_FILES = ("config.json", "*.safetensors", "*.bin", "tokenizer.json", "vocab.*")
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

        A supernet that was trained here has sizes in its order of units: it is not ranked again by default.
        """
        in_order = {"rank_examples": 0} if Path(self.source, RUN_NAME).is_file() else {}
        values = {**TASK_SETTINGS, **in_order, **task.settings, **self.settings, "seed": seed}
        return TrainingSettings().with_arguments(values)

    def described(self, task: Task, seed: int, data: TaskData) -> dict[str, Any]:
        """Gives what a result has to agree with to answer the request, in plain values.

        Args:
            task: The task; of a diagnostic, the model that answers it is described.
            seed: Seed of the training.
            data: The rows that were read.
        """
        task = task if task.model_of is None else find_task(task.benchmark, task.model_of)
        return {
            "source": _content(self.source),
            "new_head": self.new_head,
            "sizes": None if self.sizes is None else {name: dict(of) for name, of in self.sizes.items()},
            "settings": dataclasses.asdict(self.settings_for(task, seed)),
            "data": {split: DataFingerprint.of(rows).content_hash for split, rows in data.splits.items()},
            "folds": self.folds,
            "held_out_fraction": self.held_out_fraction,
        }


def predictions_file(training: Path, split: str, size: str) -> Path:
    """Gives where a training keeps what a size predicts.

    Args:
        training: Folder of the training.
        split: Name of the split.
        size: Name of the size.
    """
    return training / PREDICTIONS_FOLDER / split / f"{size}.npz"


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
    _check_folds(request, diagnostics)
    trainings = [(task, seed, number) for task in [*trained, *diagnostics] for seed, number in _parts(request)]
    for task, seed, number in trainings:  # before the first begins
        folder = training_folder(output_dir, task.name, seed, number)
        if TaskResult.load(folder) is not None:
            _check_answers(folder, request.described(task, seed, _read(request, task, seed)))
    results, failures = [], {}
    for task, seed, number in trainings:
        folder = training_folder(output_dir, task.name, seed, number)
        name = folder.relative_to(output_dir).as_posix()
        try:
            results.append(_result(request, task, seed, number, folder, output_dir, on_training, on_phase))
        except Exception as error:
            if len(trainings) == 1:
                raise
            failures[name] = f"{type(error).__name__}: {error}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ERROR_NAME).write_text(traceback.format_exc(), encoding="utf-8")
            logger.error(f"{name} failed, and the others go on: {failures[name]}")
    return BenchmarkRun(results, failures)


def _check_folds(request: BenchmarkRequest, diagnostics: Sequence[Task]) -> None:
    if request.folds < 0 or request.folds == 1:
        raise ValueError(f"folds={request.folds}: give at least 2, or 0 to score the splits of the benchmark.")
    if request.folds and diagnostics:
        raise ValueError(
            f"{diagnostics[0].name} is a diagnostic without training rows: leave it out, or give folds=0."
        )
    if request.folds and request.robustness:
        raise ValueError("robustness needs supernets, which a cross-validation does not keep: give folds=0.")


def _read(request: BenchmarkRequest, task: Task, seed: int) -> TaskData:
    # Of folds each is scored by what it leaves out.
    held_out = {"validation_fraction": 0.0} if request.folds else {}
    return read_task(task, request.data, seed=seed, **held_out)


def _content(source: str) -> str:
    """Tells a checkpoint by what it holds, wherever it lies: its name, and a hash of its files; a Hub id is itself."""
    folder = Path(source)
    if not folder.is_dir():
        return str(source)
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _CHECKPOINT_FILES for path in folder.glob(pattern)):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"{folder.resolve().name} ({digest.hexdigest()[:16]})"


def _parts(request: BenchmarkRequest) -> Iterator[tuple[int, int | None]]:
    for seed in dict.fromkeys(request.seeds):
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


def _check_answers(folder: Path, wanted: dict[str, Any]) -> None:
    """Raises a ValueError if the result of a folder is of something else."""
    found = TaskResult.load(folder).request
    if found == wanted:
        return
    flat_wanted, flat_found = _flat(wanted), _flat(found)
    name = next(name for name in {**flat_wanted, **flat_found} if flat_wanted.get(name) != flat_found.get(name))
    raise ValueError(
        f"{folder} has the result of a run with {name}={flat_found.get(name)!r}, and now it is "
        f"{flat_wanted.get(name)!r}. Give another folder for the results, or remove that one."
    )


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    settings = values.get("settings", {})
    return {**{name: value for name, value in values.items() if name != "settings"}, **settings}


def _result(
    request: BenchmarkRequest,
    task: Task,
    seed: int,
    number: int | None,
    folder: Path,
    output_dir: Path,
    on_training: Callable[[str], None] | None,
    on_phase: Callable[[str], None] | None,
) -> TaskResult:
    """The result of a training: that which is there, else a new one."""
    result, supernet = TaskResult.load(folder), folder / SUPERNET_FOLDER
    wants_robustness = request.robustness and (result is None or (result.scores and not result.robustness))
    if result is not None and not wants_robustness:
        return result
    if on_training is not None:
        on_training(folder.relative_to(output_dir).as_posix())
    data = _read(request, task, seed)
    wanted = request.described(task, seed, data)
    if task.model_of is not None:
        supernet = _answering_supernet(request, task, seed, output_dir)
        run = answer_task(supernet, data)
    elif result is not None:
        run = answer_task(supernet, data)
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
            run.save_supernet(supernet)
    if result is None:
        result = run.result(wanted, seed, number)
        shutil.rmtree(folder / PREDICTIONS_FOLDER, ignore_errors=True)  # of a run that was broken off
        for split, by_size in run.predictions.items():
            for size, predictions in by_size.items():
                predictions.save(folder / PREDICTIONS_FOLDER / split / f"{size}.npz")
        result.save(folder)
    if wants_robustness and result.scores:
        result = dataclasses.replace(result, robustness=run.robustness())
        result.save(folder)
    (folder / ERROR_NAME).unlink(missing_ok=True)
    return result


def _answering_supernet(request: BenchmarkRequest, task: Task, seed: int, output_dir: Path) -> Path:
    """The supernet that answers a diagnostic, if it is of the same request."""
    trained = find_task(task.benchmark, task.model_of)
    folder = training_folder(output_dir, trained.name, seed)
    if TaskResult.load(folder) is None:
        raise FileNotFoundError(
            f"{task.name} is answered by a model of {trained.name}, of which there is no result in {folder}: run "
            f"{trained.name} first, or with it."
        )
    _check_answers(folder, request.described(trained, seed, _read(request, trained, seed)))
    return folder / SUPERNET_FOLDER
