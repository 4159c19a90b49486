"""Ensembles of what was predicted: of the sizes of a run, the seeds of a size, or runs of different checkpoints.

What is distinctive: only files are read that [`run_benchmark`] left, so neither models nor data are needed. Weights
are given and never fitted here: chosen on the split that is reported, they would make its scores too good.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from transformers.utils import logging

from .atomic_files import replaced_file
from .benchmark_training import PREDICTIONS_FOLDER, predictions_file, training_folder
from .benchmarks import find_task
from .predictions import Predictions, mean_probabilities
from .run_submission import submit_predictions
from .scoring import score
from .task import Task
from .task_result import RESULT_NAME, TaskResult

logger = logging.get_logger(__name__)

ENSEMBLE = "ensemble"
ENSEMBLE_NAME = "ensemble.json"
VERSION = 1


@dataclass(frozen=True)
class Member:
    """One size of one training.

    Args:
        run: Folder that [`run_benchmark`] wrote.
        result: Result of the training.
        size: Name of the size.
        weight: How much it counts, beside the other members.
    """

    run: Path
    result: TaskResult
    size: str
    weight: float = 1.0

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return f"{self.run}:{self.size}:{self.result.seed}"

    @property
    def task(self) -> Task:
        """What it was trained on, or is asked as a diagnostic."""
        return find_task(self.result.benchmark, self.result.task)

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """What it scores alone, by split and name of the metric."""
        return {split: by_size[self.size] for split, by_size in self.result.scores.items()}

    def file(self, split: str) -> Path:
        """Gives where its predictions for a split lie."""
        return predictions_file(training_folder(self.run, self.result.task, self.result.seed), split, self.size)


@dataclass(frozen=True)
class Ensemble:
    """What several members answer together.

    Args:
        members: At least two, of one task.
        predictions: Their mean predictions, by split.
    """

    members: tuple[Member, ...]
    predictions: dict[str, Predictions]

    @property
    def task(self) -> Task:
        """The task."""
        return self.members[0].task

    @cached_property
    def scores(self) -> dict[str, dict[str, float]]:
        """The task's metrics by split and name, of the splits with labels."""
        return {
            split: score(self.task, predictions.labelled_rows, predictions.answers)
            for split, predictions in self.predictions.items()
            if predictions.labels is not None
        }

    def save(self, output_dir: str | Path) -> Path:
        """Writes its predictions, and who its members are, into `<output_dir>/<task>/ensemble`.

        Args:
            output_dir: A folder; it may be that of a run.

        Returns:
            The folder.
        """
        folder = Path(output_dir) / self.task.name / ENSEMBLE
        shutil.rmtree(folder / PREDICTIONS_FOLDER, ignore_errors=True)  # of a former one
        for split, predictions in self.predictions.items():
            predictions.save(predictions_file(folder, split, ENSEMBLE))
        members = [
            {"run": str(of.run), "size": of.size, "seed": of.result.seed, "weight": of.weight, "scores": of.scores}
            for of in self.members
        ]
        values = {
            "version": VERSION,
            "benchmark": self.task.benchmark,
            "task": self.task.name,
            "members": members,
            "scores": self.scores,
        }
        with replaced_file(folder / ENSEMBLE_NAME) as file:
            file.write((json.dumps(values, indent=2) + "\n").encode())
        return folder


def find_members(task: str, chosen: str, weight: float = 1.0) -> list[Member]:
    """Finds what is meant by `<folder of a run>[:size[:seed]]`; what is left out stands for all there are.

    Args:
        task: Name of the task.
        chosen: E.g. `"runs:small"`, all seeds of one size; `"runs::42"`, all sizes of one seed; `"runs"`, everything.
        weight: Of each member.

    Returns:
        The members by seed, the largest size first.

    Raises:
        FileNotFoundError: If there is no such folder, or no result of the task and the seed in it.
        ValueError: If the seed is no number, or there is no such size.
    """
    run, size, seed = _parsed(chosen)
    loaded = (TaskResult.load(folder) for folder in (run / task).glob("seed-*"))
    results = sorted((of for of in loaded if of is not None and of.fold is None), key=lambda of: of.seed)
    if not results:
        raise FileNotFoundError(
            f"{run} has no result of {task} (but of {', '.join(_tasks_of(run)) or 'no task'}; folds of a "
            "cross-validation do not count, whose rows differ): run the task there first."
        )
    found = [of for of in results if seed in (None, of.seed)]
    if not found:
        seeds = ", ".join(str(of.seed) for of in results)
        raise FileNotFoundError(f"{chosen}: {run} has {task} of the seeds {seeds}, and not of {seed}.")
    members = [Member(run, of, name, weight) for of in found for name in of.costs if size in (None, name)]
    if not members:
        sizes = dict.fromkeys(name for of in found for name in of.costs)
        raise ValueError(f"{chosen}: {run} has no size {size!r} of {task}, but {', '.join(sizes)}.")
    return members


def named_in(chosen: str, names: Sequence[str]) -> list[str]:
    """Gives names of tasks, each once; `"all"` stands for those that a run has results of, but for folds.

    Args:
        chosen: As [`find_members`] takes it.
        names: The names.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    run = _parsed(chosen)[0]
    return list(dict.fromkeys(each for name in names for each in (_tasks_of(run) if name == "all" else [name])))


def join(members: Sequence[Member], splits: Iterable[str] | None = None) -> Ensemble:
    """Averages what members predict, see [`mean_probabilities`]: all of them the same rows of the same task.

    Members whose logits a threshold was fitted for count with their probabilities after it, of which one half is where
    the answer changes.

    Args:
        members: At least two.
        splits: Splits to read. By default all that every member has predicted.

    Raises:
        FileNotFoundError: If there is no split that all have predicted.
        ValueError: If there are fewer than two members, one is there twice, they are of different tasks, or did not
            predict the same rows.
    """
    _check_members(members)
    task = members[0].task
    if splits is None:
        predicted = {split: [of.file(split).is_file() for of in members] for split in task.splits}
        splits = [split for split, of_members in predicted.items() if all(of_members)]
        if partly := [split for split, of_members in predicted.items() if any(of_members) and split not in splits]:
            logger.warning(f"{', '.join(partly)} of {task.name} was not predicted by all members, and is left out.")
        if not splits:
            raise FileNotFoundError(
                f"There is no split of {task.name} that {' and '.join(of.name for of in members)} have all predicted: "
                "run them on the same data."
            )
    predictions = {}
    for split in splits:
        _check_rows(members, split)
        of_split = [Predictions.load(of.file(split)) for of in members]
        predictions[split] = mean_probabilities(of_split, [of.weight for of in members])
    return Ensemble(tuple(members), predictions)


def rows_hash(member: Member, split: str) -> str | None:
    """Gives the hash of the rows that a member predicted.

    Args:
        member: The member.
        split: Name of the split.
    """
    return member.result.request.get("data", {}).get(split)


def submit_ensembles(ensembles: Sequence[Ensemble], folder: str | Path) -> Path:
    """Writes the zip that a benchmark's server takes, with what ensembles answer.

    Args:
        ensembles: One for each task of a benchmark. Missing ones are logged; the server wants all.
        folder: Where to.

    Returns:
        The file.

    Raises:
        ValueError: If they are of different benchmarks, or no test split was predicted.
    """
    benchmarks = list(dict.fromkeys(of.task.benchmark for of in ensembles))
    if len(benchmarks) > 1:
        raise ValueError(f"A submission is for one benchmark, and these are tasks of {' and '.join(benchmarks)}.")
    predictions = {of.task.name: of.predictions for of in ensembles}
    return submit_predictions(Path(folder) / f"{benchmarks[0]}-{ENSEMBLE}.zip", benchmarks[0], predictions)


def _tasks_of(run: Path) -> list[str]:
    files = run.glob(f"*/seed-*/{RESULT_NAME}")
    return sorted({path.parent.parent.name for path in files if "-fold-" not in path.parent.name})


def _parsed(chosen: str) -> tuple[Path, str | None, int | None]:
    """Folder, size and seed. A colon belongs to the folder where one of that name exists."""
    for parts in range(3):
        folder, *of_folder = chosen.rsplit(":", parts)
        if Path(folder).is_dir():
            break
    else:
        raise FileNotFoundError(f"{chosen}: there is no folder {folder!r}. Give <folder of a run>[:size[:seed]].")
    size, seed = (*of_folder, "", "")[:2]
    if seed and not seed.isdecimal():
        raise ValueError(f"{chosen}: the seed {seed!r} is no number. Give <folder of a run>[:size[:seed]].")
    return Path(folder), size or None, int(seed) if seed else None


def _check_members(members: Sequence[Member]) -> None:
    names = [of.name for of in members]
    if len(members) < 2:
        raise ValueError(f"An ensemble of {', '.join(names) or 'nothing'}: give at least two members.")
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"{twice[0]} is there twice: to let it count more, give it a weight.")
    first = members[0]
    for other in members[1:]:
        if other.task != first.task:
            tasks = [f"{of.name} is of {of.task.benchmark} {of.task.name}" for of in (first, other)]
            raise ValueError(f"{' and '.join(tasks)}: only models of one task can answer together.")


def _check_rows(members: Sequence[Member], split: str) -> None:
    first = members[0]
    for other in members[1:]:
        if rows_hash(other, split) != rows_hash(first, split):
            raise ValueError(
                f"{first.name} and {other.name} did not predict the same rows as {split!r}: run them on the same "
                "data. (Rows that are held out because there is no validation split differ with the seed.)"
            )
