"""One training of a benchmark's run, or the answering of a diagnostic, with the folder of its result."""

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .benchmark_request import BenchmarkRequest, content_hash, row_hashes
from .benchmarks import find_task
from .cross_validation import fold
from .multi_task_training import train_on_tasks
from .task import Task
from .task_data import TaskData, read_other_rows, read_task
from .task_result import OtherRows, TaskResult
from .task_run import TaskRun, answer_task
from .task_training import train_on_task

if TYPE_CHECKING:
    import datasets

SUPERNET_FOLDER, PREDICTIONS_FOLDER, ERROR_NAME = "supernet", "predictions", "error.txt"


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
class BenchmarkTraining:
    """What is to be done for one result.

    Args:
        request: What is to be run.
        task: The task, or a diagnostic.
        seed: Seed of the training.
        number: Number of the fold of a cross-validation.
        output_dir: Folder of the run.
        together: The tasks that are trained on one encoder, this one among them; none trains it by itself.
    """

    request: BenchmarkRequest
    task: Task
    seed: int
    number: int | None
    output_dir: Path
    together: tuple[Task, ...] = ()

    @property
    def folder(self) -> Path:
        """Where the result is."""
        return training_folder(self.output_dir, self.task.name, self.seed, self.number)

    @property
    def name(self) -> str:
        """What it is called for readers."""
        return self.folder.relative_to(self.output_dir).as_posix()

    @property
    def name_of_all(self) -> str:
        """The name of the training with all its tasks."""
        if not self.together or self.task.model_of is not None:
            return self.name
        return f"{'+'.join(task.name for task in self.together)}/seed-{self.seed}"

    @property
    def trained(self) -> "BenchmarkTraining":
        """The training of the supernet that answers: this one, or for a diagnostic that of its task."""
        if self.task.model_of is None:
            return self
        return dataclasses.replace(self, task=find_task(self.task.benchmark, self.task.model_of))

    def checked_result(self) -> TaskResult | None:
        """Gives the result that is there, if any.

        Raises:
            ValueError: If it is one of other settings, rows or another checkpoint; names what differs.
        """
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

    def check_model(self) -> None:
        """Checks that there is what answers a diagnostic.

        Raises:
            FileNotFoundError: If there is no result of its task.
            ValueError: If that is one of something else.
        """
        trained = self.trained
        if trained.checked_result() is None:
            raise FileNotFoundError(
                f"{self.task.name} is answered by a model of {trained.task.name}, of which there is no result in "
                f"{trained.folder}: run {trained.task.name} first, or with it."
            )

    def result(self, on_training: Callable[[str], None] | None, on_phase: Callable[[str], None] | None) -> TaskResult:
        """Gives the result: that which is there, else a new one, with what it lacks.

        Args:
            on_training: Called with the name when something is to be done.
            on_phase: As [`train_on_task`] takes it.

        Raises:
            FileNotFoundError: If it is a diagnostic's, and there is no model to answer it.
            ValueError: If that is a model of another request, or rows, settings and checkpoint do not fit together.
        """
        trained = self.trained
        if trained is self and any(TaskResult.load(each.folder) is None for each in self._all):
            if on_training is not None:
                on_training(self.name_of_all)
            self._train_all(on_phase)
            on_training = None
        result = TaskResult.load(self.folder)
        others = self._other_rows(result)
        if result is not None and not self._lacks_robustness(result) and not others:
            return result
        if on_training is not None:
            on_training(self.name)
        if trained is not self:
            self.check_model()
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
            scored = OtherRows(content_hash(rows), len(rows), run.score_rows(rows, name))
            result = dataclasses.replace(result, out_of_domain={**result.out_of_domain, name: scored})
            result.save(self.folder)
        return result

    def keep_error(self, text: str) -> None:
        """Writes down why there is no result; a later one removes it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / ERROR_NAME).write_text(text, encoding="utf-8")

    def _lacks_robustness(self, result: TaskResult) -> bool:
        return bool(self.request.robustness and result.scores and not result.robustness)

    def _other_rows(self, result: TaskResult | None) -> "dict[str, datasets.Dataset]":
        """The rows of other domains that a result has no scores of."""
        if self.trained is not self:
            return {}
        known = {} if result is None else {name: of.content_hash for name, of in result.out_of_domain.items()}
        others = {name: read_other_rows(self.task, rows, name) for name, rows in self.request.out_of_domain.items()}
        return {name: rows for name, rows in others.items() if known.get(name) != content_hash(rows)}

    def _read(self) -> TaskData:
        held_out = {"validation_fraction": 0.0} if self.request.folds else {}  # a fold is scored by what it leaves out
        return read_task(self.task, self.request.data, seed=self.seed, **held_out)

    def _described(self, data: TaskData) -> dict[str, Any]:
        """What the result has to agree with; of a diagnostic, what that of its model has to, and its own rows."""
        trained = self.trained
        if trained is not self:
            of_model = trained._described(trained._read())
            return {**of_model, "data": row_hashes(data), "training_data": of_model["data"]}
        described = self.request.described(self.task, self.seed, data)
        if self.together:
            settings = dataclasses.asdict(self.request.settings_for(None, self.seed))
            described["settings"] = {**settings, "max_length": self._max_length}
            described["tasks"] = [task.name for task in self.together]
        return described

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

    @property
    def _all(self) -> "list[BenchmarkTraining]":
        """What is trained on one encoder; nothing if it is trained by itself."""
        return [dataclasses.replace(self, task=task) for task in self.together]

    def _train_all(self, on_phase: Callable[[str], None] | None) -> None:
        """Trains the tasks on one encoder, and saves the result of each."""
        trainings = self._all
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
        (self.folder / ERROR_NAME).unlink(missing_ok=True)
        return result


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a result was asked for by single names: settings by their own, hashes of rows by their split's."""
    rows = {
        f"{of}[{split}]": digest for of in ("data", "training_data") for split, digest in values.get(of, {}).items()
    }
    others = {name: value for name, value in values.items() if name not in ("settings", "data", "training_data")}
    return {**others, **values.get("settings", {}), **rows}
