"""Tasks of a benchmark, one after the other, for several seeds or folds: what is done stays done.

Each training has a folder of its own, `<task>/seed-<seed>` or `<task>/seed-<seed>-fold-<number>`, whose result file is
written last. A run that was stopped goes on with what has no result, and a task that fails does not stop the others.
"""

import dataclasses
import hashlib
import json
import shutil
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.utils import logging

from ..hub.integrity import file_hash
from ..recipes import DEFAULT_SUBNETS, TrainingSettings
from ..training.data_fingerprint import DataFingerprint
from ..training.provenance import RUN_NAME
from .benchmarks import find_task, named_tasks
from .cross_validation import fold
from .multi_task_training import train_on_tasks
from .task import Task
from .task_data import TaskData, read_other_rows, read_task
from .task_mixture import Mixing
from .task_result import OtherRows, TaskResult
from .task_training import TaskRun, answer_task, train_on_task

if TYPE_CHECKING:
    import datasets

    from .task_data import TaskSource

logger = logging.get_logger(__name__)

SUPERNET_FOLDER, PREDICTIONS_FOLDER, ERROR_NAME = "supernet", "predictions", "error.txt"
# What a checkpoint is told by.
_CHECKPOINT_FILES = ("config.json", "*.safetensors", "*.bin", "tokenizer*.json", "vocab.*", "merges.txt", "*.model")
# What fine-tuning on the benchmarks' tasks takes, where neither the task nor the caller says otherwise.
TASK_SETTINGS: dict[str, Any] = {"batch_size": 32, "head_lr_multiplier": 5.0}


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
        out_of_domain: Files of labelled rows of other domains, with the task's columns, by a name for each: what every
            size is scored on besides.
        mixing: How often each task comes where all of them are trained on one encoder, see [`train_on_tasks`]; None
            trains each by itself.

    Raises:
        ValueError: If there is one fold alone, or `robustness`, `out_of_domain` or `mixing` is wanted of folds.
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
    out_of_domain: Mapping[str, "str | Path | datasets.Dataset"] = field(default_factory=dict)
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        if self.folds < 0 or self.folds == 1:
            raise ValueError(f"folds={self.folds}: give at least 2, or 0 to score the splits of the benchmark.")
        if self.folds and (self.robustness or self.out_of_domain):
            raise ValueError(
                f"folds={self.folds} keeps no supernets to measure on other texts: give folds=0, or leave out "
                "robustness and out_of_domain."
            )
        if self.folds and self.mixing is not None:
            raise ValueError(f"folds={self.folds} is of one task at a time: give folds=0, or mixing=None.")

    def settings_for(self, task: Task | None, seed: int) -> TrainingSettings:
        """Gives the training settings of a task: the common ones, then the task's, then the request's.

        A supernet that was trained here has sizes in its order of units: it is not ranked again by default.

        Args:
            task: The task; None for a training on several.
            seed: Seed of the training.
        """
        in_order = {"rank_examples": 0} if Path(self.source, RUN_NAME).is_file() else {}
        of_task = {} if task is None else task.settings
        values = {**TASK_SETTINGS, **in_order, **of_task, **self.settings, "seed": seed}
        return TrainingSettings().with_arguments(values)

    def described(self, task: Task, seed: int, data: TaskData) -> dict[str, Any]:
        """Gives what a result has to agree with to answer the request, as JSON gives it back.

        Args:
            task: The task.
            seed: Seed of the training.
            data: The rows that were read.
        """
        values = {
            "source": _content(self.source),
            "new_head": self.new_head,
            "sizes": None if self.sizes is None else {name: dict(of) for name, of in self.sizes.items()},
            "settings": dataclasses.asdict(self.settings_for(task, seed)),
            "data": _row_hashes(data),
            "folds": self.folds,
            "held_out_fraction": self.held_out_fraction,
            "mixing": None if self.mixing is None else dataclasses.asdict(self.mixing),
        }
        return json.loads(json.dumps(values, default=str))


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
    if request.folds and diagnostics:
        raise ValueError(
            f"{diagnostics[0].name} is a diagnostic without training rows: leave it out, or give folds=0."
        )
    if request.mixing is not None and len(trained) < 2:
        raise ValueError(f"mixing is of several tasks, and there is {', '.join(t.name for t in trained) or 'none'}.")
    if request.out_of_domain and len(trained) != 1:
        raise ValueError(
            f"out_of_domain={', '.join(request.out_of_domain)} has the columns of one task, and there are "
            f"{', '.join(task.name for task in tasks)}: run that task by itself."
        )
    for name, rows in request.out_of_domain.items():
        read_other_rows(trained[0], rows, name)
    trainings = [
        _Training(request, task, seed, number, output_dir, tuple(trained) if request.mixing is not None else ())
        for task in [*trained, *diagnostics]
        for seed in dict.fromkeys(request.seeds)
        for number in (range(request.folds) if request.folds else [None])
    ]
    for training in trainings:  # before the first begins
        training.checked_result()
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
            training.folder.mkdir(parents=True, exist_ok=True)
            (training.folder / ERROR_NAME).write_text(traceback.format_exc(), encoding="utf-8")
            logger.error(f"{training.name_of_all} failed, and the others go on: {failures[training.name_of_all]}")
    return BenchmarkRun(results, failures)


def training_folder(output_dir: str | Path, task: str, seed: int, number: int | None = None) -> Path:
    """Gives the folder of a training.

    Args:
        output_dir: Folder of the run.
        task: Name of the task.
        seed: Seed of the training.
        number: Number of the fold of a cross-validation.
    """
    return Path(output_dir) / task / (f"seed-{seed}" if number is None else f"seed-{seed}-fold-{number}")


def predictions_file(training: Path, split: str, size: str) -> Path:
    """Gives where a training keeps what a size predicts.

    Args:
        training: Folder of the training.
        split: Name of the split.
        size: Name of the size.
    """
    return training / PREDICTIONS_FOLDER / split / f"{size}.npz"


@dataclass(frozen=True)
class _Training:
    """One training of a run, or the answering of a diagnostic: what is to be done, and the folder of its result."""

    request: BenchmarkRequest
    task: Task
    seed: int
    number: int | None
    output_dir: Path
    together: tuple[Task, ...] = ()  # the tasks that are trained on one encoder

    @property
    def folder(self) -> Path:
        return training_folder(self.output_dir, self.task.name, self.seed, self.number)

    @property
    def name(self) -> str:
        return self.folder.relative_to(self.output_dir).as_posix()

    @property
    def name_of_all(self) -> str:
        """The name of the training with all its tasks."""
        return f"{'+'.join(task.name for task in self.together)}/seed-{self.seed}" if self.together else self.name

    @property
    def trained(self) -> "_Training":
        """The training of the supernet that answers: this one, or for a diagnostic that of its task."""
        if self.task.model_of is None:
            return self
        return dataclasses.replace(self, task=find_task(self.task.benchmark, self.task.model_of))

    def checked_result(self) -> TaskResult | None:
        """The result that is there, if any. Raises a ValueError if it is one of something else."""
        result = TaskResult.load(self.folder)
        if result is None:
            return None
        wanted, found = _flat(self._described(self._read())), _flat(result.request)
        different = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
        if different:
            name = different[0]
            raise ValueError(
                f"{self.folder} has the result of a run with {name}={found.get(name)!r}, and now it is "
                f"{wanted.get(name)!r}. Give another folder for the results, or remove that one."
            )
        return result

    def result(self, on_training: Callable[[str], None] | None, on_phase: Callable[[str], None] | None) -> TaskResult:
        """The result: that which is there, else a new one, with what it lacks."""
        result = TaskResult.load(self.folder)
        others = self._other_rows(result)
        if result is not None and not self._lacks_robustness(result) and not others:
            return result
        trained = self.trained
        trains_all = bool(self.together) and result is None and trained is self
        if on_training is not None:
            on_training(self.name_of_all if trains_all else self.name)
        if trains_all:
            self._train_all(on_phase)
            return self.result(None, None)
        if trained is not self and trained.checked_result() is None:
            raise FileNotFoundError(
                f"{self.task.name} is answered by a model of {trained.task.name}, of which there is no result in "
                f"{trained.folder}: run {trained.task.name} first, or with it."
            )
        data = self._read()
        wanted = self._described(data)
        if result is None and trained is self:
            run = self._train(data, on_phase)
        else:
            run = answer_task(trained.folder / SUPERNET_FOLDER, data)
        if result is None:
            result = self._save(run, wanted)
        if self._lacks_robustness(result):
            result = dataclasses.replace(result, robustness=run.robustness())
            result.save(self.folder)
        for name, rows in others.items():
            scored = OtherRows(_content_hash(rows), len(rows), run.score_rows(rows, name))
            result = dataclasses.replace(result, out_of_domain={**result.out_of_domain, name: scored})
            result.save(self.folder)
        (self.folder / ERROR_NAME).unlink(missing_ok=True)
        return result

    def _lacks_robustness(self, result: TaskResult) -> bool:
        return bool(self.request.robustness and result.scores and not result.robustness)

    def _other_rows(self, result: TaskResult | None) -> "dict[str, datasets.Dataset]":
        """The rows of other domains that a result has no scores of."""
        if self.trained is not self:
            return {}
        known = {} if result is None else {name: of.content_hash for name, of in result.out_of_domain.items()}
        others = {name: read_other_rows(self.task, rows, name) for name, rows in self.request.out_of_domain.items()}
        return {name: rows for name, rows in others.items() if known.get(name) != _content_hash(rows)}

    def _read(self) -> TaskData:
        held_out = {"validation_fraction": 0.0} if self.request.folds else {}  # a fold is scored by what it leaves out
        return read_task(self.task, self.request.data, seed=self.seed, **held_out)

    def _described(self, data: TaskData) -> dict[str, Any]:
        """What the result has to agree with; of a diagnostic, what that of its model has to, and its own rows."""
        trained = self.trained
        if trained is self and not self.together:
            return self.request.described(self.task, self.seed, data)
        if trained is self:
            settings = dataclasses.asdict(self.request.settings_for(None, self.seed))
            settings["max_length"] = self._max_length
            names = [task.name for task in self.together]
            return {**self.request.described(self.task, self.seed, data), "settings": settings, "tasks": names}
        of_model = trained._described(trained._read())
        return {**of_model, "data": _row_hashes(data), "training_data": of_model["data"]}

    def _train(self, data: TaskData, on_phase: Callable[[str], None] | None) -> TaskRun:
        run = train_on_task(
            self.request.source,
            data if self.number is None else fold(data, self.number, self.request.folds, self.seed),
            self.request.settings_for(self.task, self.seed),
            self.request.sizes,
            new_head=self.request.new_head,
            held_out_fraction=self.request.held_out_fraction,
            on_phase=on_phase,
        )
        if self.number is None:
            run.save_supernet(self.folder / SUPERNET_FOLDER)
        return run

    @property
    def _max_length(self) -> int:
        return self.request.settings_for(self.task, self.seed).max_length

    def _train_all(self, on_phase: Callable[[str], None] | None) -> None:
        """Trains the tasks on one encoder, and saves the result of each."""
        trainings = [dataclasses.replace(self, task=task) for task in self.together]
        rows = [training._read() for training in trainings]
        runs = train_on_tasks(
            self.request.source,
            [(data, training._max_length) for data, training in zip(rows, trainings, strict=True)],
            self.request.settings_for(None, self.seed),
            self.request.mixing,
            self.request.sizes,
            held_out_fraction=self.request.held_out_fraction,
            on_phase=on_phase,
        )
        for training, data, run in zip(trainings, rows, runs, strict=True):
            run.save_supernet(training.folder / SUPERNET_FOLDER)
            training._save(run, training._described(data))

    def _save(self, run: TaskRun, request: dict[str, Any]) -> TaskResult:
        result = run.result(request, self.seed, self.number)
        shutil.rmtree(self.folder / PREDICTIONS_FOLDER, ignore_errors=True)  # of a run that was broken off
        for split, by_size in run.predictions.items():
            for size, predictions in by_size.items():
                predictions.save(predictions_file(self.folder, split, size))
        result.save(self.folder)
        return result


def _content(source: str) -> str:
    """Tells a checkpoint by what it holds, wherever it lies: its name, and a hash of its files; a Hub id is itself."""
    folder = Path(source)
    if not folder.is_dir():
        return str(source)
    files = sorted(path for pattern in _CHECKPOINT_FILES for path in folder.glob(pattern))
    listing = "".join(f"{path.name} {file_hash(path)}\n" for path in files)
    return f"{folder.resolve().name} ({hashlib.sha256(listing.encode()).hexdigest()[:16]})"


def _row_hashes(data: TaskData) -> dict[str, str | None]:
    return {split: _content_hash(rows) for split, rows in data.splits.items()}


def _content_hash(rows: "datasets.Dataset") -> str | None:
    return DataFingerprint.of(rows).content_hash


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a result was asked for by single names: settings by their own, hashes of rows by their split's."""
    rows = {
        f"{of}[{split}]": digest for of in ("data", "training_data") for split, digest in values.get(of, {}).items()
    }
    others = {name: value for name, value in values.items() if name not in ("settings", "data", "training_data")}
    return {**others, **values.get("settings", {}), **rows}
