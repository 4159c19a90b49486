"""The rows of a task: from the Hub, a folder, or files of a user's own, checked against the task's schema."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.utils import logging

from .benchmarks import HUB_IDS
from .input_formats import Entities
from .labels import LabelColumn
from .row_checks import check_rows
from .sources import load_file, load_folder, require_datasets
from .splits import grouped_split, stratified_split
from .task import Task

if TYPE_CHECKING:
    import datasets

    TaskSource = str | Path | Mapping[str, str | Path | datasets.Dataset] | None

logger = logging.get_logger(__name__)

# What the Hub gives in place of a label that is kept secret.
HIDDEN = -1


@dataclass(frozen=True)
class TaskData:
    """The rows of a task by split, with the columns of its schema, `idx`, and encoded labels.

    Args:
        task: The task.
        splits: Its rows; labels are ids or numbers, [`HIDDEN`] where there are none.
    """

    task: Task
    splits: "dict[str, datasets.Dataset]"

    @property
    def train(self) -> "datasets.Dataset":
        """The rows to train on."""
        return self.splits[self.task.train_split]

    @property
    def scored_splits(self) -> tuple[str, ...]:
        """The splits besides the training's that have labels, the one to choose settings by first."""
        return tuple(name for name in self.splits if name != self.task.train_split and self.has_labels(name))

    def has_labels(self, split: str) -> bool:
        """Says whether the answers of a split are known."""
        return self.splits[split][0][self.task.label_column] not in (HIDDEN, [])  # all are known, or none

    def limit(self, train_rows: int, seed: int = 42) -> "TaskData":
        """Keeps a part of the training rows, see [`split_rows`].

        Args:
            train_rows: How many; where there are no more than that, all are kept. Of groups, about as many.
            seed: Seed of the choice.

        Raises:
            ValueError: If it is less than 1.
        """
        if train_rows < 1:
            raise ValueError(f"train_rows={train_rows}: keep at least one row.")
        if train_rows >= len(self.train):
            return self
        kept, _ = split_rows(self.task, self.train, 1 - train_rows / len(self.train), seed)
        return self.replaced(**{self.task.train_split: self.train.select(kept)})

    def replaced(self, **splits: "datasets.Dataset") -> "TaskData":
        """Gives the data with other splits, or further ones."""
        return replace(self, splits={**self.splits, **splits})


def read_task(task: Task, source: "TaskSource" = None, validation_fraction: float = 0.1, seed: int = 42) -> TaskData:
    """Reads the rows of a task and checks them against its schema.

    Args:
        task: The task.
        source: A folder with files named after the splits, in it or in `<benchmark>/<task>/` below it; files or
            loaded data sets by split; a Hub id; None for the benchmark's own data on the Hub.
        validation_fraction: Part of the training rows to hold out where there is no split with labels to evaluate on;
            0 for none.
        seed: Seed of that choice.

    Raises:
        FileNotFoundError: If there is no such path.
        ImportError: If `datasets` is not installed.
        ValueError: If a split or a column is missing, a split is empty, a cell is null, or a label is none of the
            task's.
    """
    found = _load(task, source)
    splits = {name: _checked(task, name, found[name]) for name in task.splits if name in found}
    if unknown := [name for name in found if name not in task.splits]:
        logger.warning(f"{task.name} has no split {', '.join(map(repr, unknown))}: what it holds is not used.")
    if not splits or (task.train_split is not None and task.train_split not in splits):
        raise ValueError(
            f"There is no split {task.splits[0]!r} of {task.name}: found {', '.join(map(repr, found)) or 'none'}, and "
            f"its splits are {', '.join(task.splits)}. Name the files so, or give them as splits."
        )
    data = TaskData(task, splits)
    if task.train_split is not None and not data.scored_splits and validation_fraction:
        data = _hold_out(data, validation_fraction, seed)
    return data


def read_other_rows(task: Task, source: "str | Path | datasets.Dataset", name: str) -> "datasets.Dataset":
    """Reads labelled rows of another domain, with a task's columns and labels.

    Args:
        task: The task.
        source: A file, or loaded rows.
        name: What they are called in errors.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If `datasets` is not installed.
        ValueError: As [`read_task`] does, and if a label is hidden.
    """
    if name in task.splits:
        raise ValueError(f"{name!r} is a split of {task.name}: call the rows of another domain by another name.")
    rows = source if isinstance(source, require_datasets().Dataset) else load_file(source)
    return _checked(task, name, rows)


def _load(task: Task, source: "TaskSource") -> "dict[str, datasets.Dataset]":
    datasets = require_datasets()
    if source is None:
        return dict(datasets.load_dataset(HUB_IDS[task.benchmark], task.name))
    if isinstance(source, Mapping):
        return {
            split: rows if isinstance(rows, datasets.Dataset) else load_file(rows) for split, rows in source.items()
        }
    folder = Path(source).expanduser()
    if folder.is_file():
        raise NotADirectoryError(
            f"{folder} is a file: give the folder it lies in, or files by split, {{'train': {str(folder)!r}, …}}."
        )
    if not folder.is_dir():
        if str(source).startswith((".", "/", "~")):
            raise FileNotFoundError(f"There is no folder {str(source)!r} to read {task.name} from.")
        return dict(datasets.load_dataset(str(source), task.name))
    below = [folder / task.benchmark / task.name, folder / task.name]
    chosen = next((path for path in below if path.is_dir()), folder)
    if chosen is folder and not any(path.stem.split("-")[0] in task.splits for path in folder.iterdir()):
        raise FileNotFoundError(
            f"There are no rows of {task.name} in {folder}: neither {' nor '.join(map(str, below))} is a folder, nor "
            f"is there a file such as {task.splits[0]}.parquet."
        )
    return load_folder(chosen)


def _checked(task: Task, split: str, rows: "datasets.Dataset") -> "datasets.Dataset":
    """The split with the columns of the schema alone, and labels as ids or numbers."""
    datasets, label = require_datasets(), task.label_column
    where, rows = f"{task.name} {split}", rows.with_format(None)
    is_hidden = split in task.test_splits and _labels_are_hidden(rows, label)
    needed = dict.fromkeys([*task.input_format.columns, *(["idx"] if "idx" in rows.column_names else [])])
    table = check_rows(rows, where, [*needed, *(() if is_hidden else (label,))])
    for name in task.input_format.text_columns:
        if "string" not in str(table[name].type):
            raise ValueError(f"Column {name!r} of the {where} data holds {table[name].type}, not text.")
    _check_idx(task, where, rows)
    kept = rows.select_columns(list(needed))
    if "idx" not in needed:
        kept = kept.add_column("idx", list(range(len(rows))))
    if isinstance(task.input_format, Entities):
        answers = [[]] * len(rows) if is_hidden else table[label].to_pylist()
        _check_answers(where, answers, is_hidden)
        return kept.add_column(label, answers, feature=datasets.List(datasets.Value("string")))
    values = [HIDDEN] * len(rows)
    if not is_hidden:
        values = _encode_labels(task, LabelColumn(table[label].to_pylist(), rows.features[label], label), where)
    number = datasets.Value("float32" if task.label_range else "int64")
    return kept.add_column(label, values, feature=number)


def _check_idx(task: Task, where: str, rows: "datasets.Dataset") -> None:
    parts = task.input_format.idx_parts
    if parts and not (isinstance(rows[0]["idx"], Mapping) and set(parts) <= rows[0]["idx"].keys()):
        raise ValueError(
            f"idx={rows[0]['idx']!r} of the {where} data does not have {', '.join(parts)}, which tell what rows "
            "belong together."
        )


def _check_answers(where: str, answers: list[Any], are_hidden: bool) -> None:
    for row, of_row in enumerate(answers):
        if not isinstance(of_row, list) or not all(isinstance(answer, str) for answer in of_row):
            raise ValueError(f"answers={of_row!r} in row {row} of the {where} data is no list of texts.")
        if not of_row and not are_hidden:
            raise ValueError(f"Row {row} of the {where} data has no answers: leave it out.")


def _labels_are_hidden(rows: "datasets.Dataset", label: str) -> bool:
    return label not in rows.column_names or all(value in (HIDDEN, None, []) for value in rows[label])


def _encode_labels(task: Task, column: LabelColumn, where: str) -> list[Any]:
    """The labels by their names, in whatever order the data number them."""
    labels = task.labels.encode(column, where)
    if task.label_range is not None:
        low, high = task.label_range
        for row, value in enumerate(labels):
            if not low <= value <= high:
                raise ValueError(f"Label {value} in row {row} of the {where} data is not between {low} and {high}.")
    return labels


def split_rows(task: Task, rows: "datasets.Dataset", fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Splits row numbers in two parts: with the labels in the same proportions, or with no group in common.

    Args:
        task: The task; its format says what is a group.
        rows: The rows.
        fraction: Size of the second part, in (0, 1).
        seed: Seed of the choice.
    """
    groups = row_groups(task, rows)
    if groups is not None:
        return grouped_split(groups, fraction, seed)
    return stratified_split(row_strata(task, rows), fraction, seed)


def row_groups(task: Task, rows: "datasets.Dataset") -> list[Any] | None:
    """Gives what ties each row to others, or None if nothing does."""
    texts = rows.select_columns(list(task.input_format.text_columns))
    if task.input_format.group(texts[0]) is None:  # as of most tasks, some of which have very many rows
        return None
    return [task.input_format.group(row) for row in texts]


def row_strata(task: Task, rows: "datasets.Dataset") -> list[Any]:
    """Gives what a choice of rows balances: the labels of a classification."""
    return list(rows[task.label_column]) if task.label_names else [0] * len(rows)


def _hold_out(data: TaskData, fraction: float, seed: int) -> TaskData:
    task, rows = data.task, data.train
    kept, held_out = split_rows(task, rows, fraction, seed)
    if not held_out:
        raise ValueError(
            f"{task.name} has no split with labels besides {task.train_split!r}, and its {len(rows)} rows are too few "
            f"to hold out {fraction:.0%} of them. Give a {task.validation_splits[0]!r} split."
        )
    logger.warning(
        f"{task.name} has no split with labels besides {task.train_split!r}: scores are of {len(held_out)} rows held "
        "out from it."
    )
    held = {task.train_split: rows.select(kept), task.validation_splits[0]: rows.select(held_out)}
    return replace(data, splits={**held, **{name: data.splits[name] for name in data.splits if name not in held}})
