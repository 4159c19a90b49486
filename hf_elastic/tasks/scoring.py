"""Scores of a task's answers, checked before they are compared."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from tempfile import TemporaryDirectory
from typing import Any

from .input_formats import Entities, Row
from .task import Task


def score(task: Task, rows: Sequence[Row], answers: Sequence[Any]) -> dict[str, float]:
    """Scores the answers to rows with labels, by the metrics of the task.

    Args:
        task: The task.
        rows: The rows, with the Hub's columns.
        answers: One per row, in the same order: a label id, a number for a regression, an entity's text for ReCoRD.

    Returns:
        Each of `task.metrics`: 0..1, correlations -1..1. A correlation with constant answers or labels is 0.

    Raises:
        ImportError: If the extra `data` is not installed.
        ValueError: If there are no rows, not as many answers as rows, an answer or label that the task does not have,
            or rows without labels.

    Example:
        >>> score(find_task("super_glue", "cb"), [{"label": 0}, {"label": 2}], [0, 1])["accuracy"]
        0.5
    """
    rows, answers = list(rows), list(answers)
    if len(rows) != len(answers):
        raise ValueError(f"{len(answers)} answers to {len(rows)} rows of {task.name}: give one for each row.")
    if not rows:
        raise ValueError(f"There are no rows of {task.name} to score.")
    _check_labels(task, rows)
    for number, answer in enumerate(answers):
        _check_answer(task, number, answer)
    # It imports torch.
    from .benchmark_metrics import metric_of

    metric_class = metric_of(task)
    references = [metric_class.reference(row) for row in rows]
    # The default folder is in the user's cache, which other processes use and which may be read-only.
    with TemporaryDirectory() as folder:
        metric = metric_class(keep_in_memory=True, cache_dir=folder)
        return metric.compute(predictions=answers, references=references, metrics=task.metrics)


def _check_labels(task: Task, rows: list[Row]) -> None:
    """Raises a ValueError if a row has no label, or one that the task does not have."""
    column = "answers" if isinstance(task.input_format, Entities) else "label"
    labels = [row.get(column) for row in rows]
    hidden = [number for number, label in enumerate(labels) if label in (None, -1, [])]
    if hidden:
        raise ValueError(
            f"{len(hidden)} of {len(rows)} rows of {task.name} have no label, the first is row {hidden[0]} with "
            f"{column}={labels[hidden[0]]!r}: there is no metric for such a split, predictions only. Score a split "
            "with labels."
        )
    if column == "label":
        low, high = task.label_range or (0, len(task.label_names) - 1)
        for number, label in enumerate(labels):
            if not isinstance(label, Real) or not low <= label <= high or (task.label_names and label != int(label)):
                raise ValueError(f"label={label!r} in row {number} of {task.name} is not in {low}..{high}.")


def _check_answer(task: Task, number: int, answer: Any) -> None:
    """Raises a ValueError if an answer is none that the task has."""
    if isinstance(task.input_format, Entities):
        valid, expected = isinstance(answer, str), "the text of an entity"
    elif task.label_names:
        valid = isinstance(answer, Integral) and 0 <= answer < len(task.label_names)
        expected = f"a label id in 0..{len(task.label_names) - 1}"
    else:
        valid, expected = isinstance(answer, Real) and math.isfinite(answer), "a finite number"
    if not valid:
        raise ValueError(f"The answer {answer!r} to row {number} of {task.name} is not {expected}.")
