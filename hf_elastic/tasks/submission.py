"""Predictions for the hidden test splits, in the files that the servers of GLUE and SuperGLUE take.

What is distinctive: file names and label texts are data of the table of tasks; there are only three forms of a file,
and which one it is follows from the benchmark and from how a task's rows are read.

References:
    How to submit: https://gluebenchmark.com/faq, https://super.gluebenchmark.com/faq
    The label texts are those that jiant wrote, the benchmarks' own runner: Pruksachatkun et al. 2020,
    https://arxiv.org/abs/2003.02249
"""

import json
import math
import operator
import zipfile
from collections.abc import Mapping, Sequence
from itertools import groupby
from numbers import Integral
from pathlib import Path
from typing import Any

from transformers.utils import logging

from .atomic_files import replaced_file
from .benchmarks import find_task, tasks_of
from .input_formats import Answers, Entities, InputFormat, Row
from .task import Task

logger = logging.get_logger(__name__)

# The parts of `idx` that tell the lines of a file apart, where it is no plain number.
_PARTS_OF_IDX: dict[type[InputFormat], tuple[str, ...]] = {
    Answers: ("paragraph", "question", "answer"),
    Entities: ("query",),
}
_SHOWN = 10


def prediction_lines(task: Task, split: str, rows: Sequence[Row], answers: Sequence[Any]) -> list[str]:
    """Gives the lines of a split's file, in the order of `idx`.

    Args:
        task: The task.
        split: One of its test splits.
        rows: The rows, of which `idx` is read, and `entities` of a task that asks for one.
        answers: The answer to each row, see [`answers_of`].

    Raises:
        ValueError: If the split is no test split or has no rows, the answers are not as many as the rows, an `idx` is
            missing or there twice, or an answer is none of the task's.

    Example:
        >>> prediction_lines(find_task("glue", "rte"), "test", [{"idx": 1}, {"idx": 0}], [0, 1])
        ['index\\tprediction', '0\\tnot_entailment', '1\\tentailment']
    """
    where = f"{task.benchmark} {task.name}"
    if split not in task.test_splits:
        names = ", ".join(map(repr, task.test_splits))
        raise ValueError(f"split={split!r} of {where} is not handed in: the test splits are {names}.")
    if not len(rows) or len(rows) != len(answers):
        raise ValueError(
            f"{len(answers)} answers for the {len(rows)} rows of split {split!r} of {where}: give every row and its "
            "answer."
        )
    placed = sorted(
        ((_place(task, row), _label(task, row, answer)) for row, answer in zip(rows, answers, strict=True)),
        key=operator.itemgetter(0),
    )
    for (place, _), (following, _) in zip(placed, placed[1:], strict=False):
        if place == following:
            raise ValueError(f"idx={place[-1]} is there twice in split {split!r} of {where}: keep one of the rows.")
    if task.benchmark == "glue":
        return ["index\tprediction", *(f"{place[-1]}\t{label}" for place, label in placed)]
    if isinstance(task.input_format, Answers):
        return _by_passage(placed)
    return [json.dumps({"idx": place[-1], "label": label}) for place, label in placed]


def required_files(benchmark: str) -> tuple[str, ...]:
    """Names of the files that a submission consists of.

    Args:
        benchmark: `"glue"` or `"super_glue"`.

    Raises:
        ValueError: If it is another one.
    """
    return tuple(dict.fromkeys(file for task in tasks_of(benchmark).values() for file in task.test_splits.values()))


def write_submission(
    path: str | Path,
    benchmark: str,
    predictions: Mapping[tuple[str, str], tuple[Sequence[Row], Sequence[Any]]],
    partial: bool = False,
) -> Path:
    """Writes the zip that is handed in. It is there with every file, or not at all.

    Args:
        path: The zip to write, in place of one that may be there.
        benchmark: `"glue"` or `"super_glue"`.
        predictions: Rows and answers of each (name of the task, test split), as [`prediction_lines`] takes them.
        partial: Whether to warn of missing files and rows, and write the others.

    Returns:
        The path.

    Raises:
        ValueError: If a file is missing, or rows of one, unless `partial`; if two splits are for the same file; or for
            what [`prediction_lines`] refuses.
    """
    files: dict[str, list[str]] = {}
    flaws = []
    for (name, split), (rows, answers) in predictions.items():
        task = find_task(benchmark, name)
        lines = prediction_lines(task, split, rows, answers)
        file = task.test_splits[split]
        if file in files:
            raise ValueError(f"{file} would be written twice, the second time for {name!r}: give one of the tasks.")
        files[file] = lines
        indices = {_place(task, row)[-1] for row in rows}
        if gaps := set(range(max(indices) + 1)) - indices:
            flaws.append(f"{file} lacks the rows with idx {_listed(sorted(gaps))}")
    if missing := [file for file in required_files(benchmark) if file not in files]:
        flaws.append(f"there are no predictions for {_listed(missing, shown=len(missing))}")
    if flaws and not partial:
        raise ValueError(
            f"The server would refuse the submission: {'; '.join(flaws)}. Predict the whole test splits of these "
            "tasks, or write an incomplete zip with partial=True."
        )
    if flaws:
        logger.warning(f"{path} is incomplete, and the server would refuse it: {'; '.join(flaws)}.")
    with replaced_file(path) as opened, zipfile.ZipFile(opened, "w") as archive:
        for file in sorted(files):
            # Without the time of writing, so that the same predictions give the same bytes.
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, "\n".join(files[file]) + "\n", zipfile.ZIP_DEFLATED)
    return Path(path)


def _place(task: Task, row: Row) -> tuple[int, ...]:
    """The numbers by which the server knows a row."""
    parts = _PARTS_OF_IDX.get(type(task.input_format))
    try:
        idx = row["idx"]
        return (operator.index(idx),) if parts is None else tuple(operator.index(idx[part]) for part in parts)
    except (KeyError, TypeError):
        kind = "a number" if parts is None else f"the numbers {', '.join(map(repr, parts))}"
        raise ValueError(
            f"A row of {task.benchmark} {task.name} has idx={row.get('idx')!r}, not {kind}: the server knows rows by "
            "it, so keep the column of the benchmark's own test split."
        ) from None


def _label(task: Task, row: Row, answer: Any) -> str | int:
    """What stands in the file for an answer."""
    where = f"the row with idx={row.get('idx')} of {task.benchmark} {task.name}"
    if task.label_range is not None:
        if not math.isfinite(answer):
            raise ValueError(f"The answer {answer!r} to {where} is no number: the model's outputs overflowed.")
        low, high = task.label_range
        return f"{max(low, min(high, answer)):.3f}"
    if isinstance(task.input_format, Entities):
        if answer not in task.input_format.candidates(row):
            raise ValueError(f"The answer {answer!r} to {where} is none of its entities: answer with one of them.")
        return answer
    labels = task.label_names if task.submitted_labels is None else task.submitted_labels
    if not isinstance(answer, Integral) or not 0 <= answer < len(labels):
        raise ValueError(f"The answer {answer!r} to {where} is no label id: ids run from 0 to {len(labels) - 1}.")
    return labels[answer]


def _by_passage(placed: Sequence[tuple[tuple[int, ...], Any]]) -> list[str]:
    """One line a passage, with its questions and their answers (MultiRC)."""
    lines = []
    for passage, of_passage in groupby(placed, key=lambda entry: entry[0][0]):
        questions = [
            {"idx": question, "answers": [{"idx": place[-1], "label": label} for place, label in of_question]}
            for question, of_question in groupby(of_passage, key=lambda entry: entry[0][1])
        ]
        lines.append(json.dumps({"idx": passage, "passage": {"questions": questions}}))
    return lines


def _listed(values: Sequence[Any], shown: int = _SHOWN) -> str:
    more = f" and {len(values) - shown} more" if len(values) > shown else ""
    return ", ".join(map(str, values[:shown])) + more
