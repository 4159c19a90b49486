"""What a run keeps of its predictions for a split, so that later work needs neither the model nor the data.

What is distinctive: logits are kept and answers never are, so that the two cannot differ; and of the rows only the
columns that answers, scores and the files of a submission are made from.
"""

import dataclasses
import json
import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .atomic_files import replaced_file
from .benchmarks import find_task
from .input_formats import Entities, Row, answers_of
from .probability_calibration import log_softmax
from .task import Task

VERSION = 2


@dataclass(frozen=True, eq=False)
class Predictions:
    """A model's logits for a split, see [`Predictions.of`].

    Args:
        benchmark: `"glue"` or `"super_glue"`.
        task: Name of the task.
        split: Name of the split.
        rows: Its rows, with `idx`, and what else answers and scores are made from, see [`Predictions.of`].
        counts: Number of examples of each row; choices of one row are one example.
        logits: Of all examples, one row's after the other's.
        labels: The right answer to each row, for entities all right ones; None for a split with hidden labels.

    Shape:
        logits: `[examples, num_labels]`.

    Raises:
        ValueError: If the parts do not fit together, or a logit is no number.
    """

    benchmark: str
    task: str
    split: str
    rows: list[Row]
    counts: list[int]
    logits: np.ndarray
    labels: list[Any] | None = None

    def __post_init__(self) -> None:
        task = find_task(self.benchmark, self.task)
        where = f"Predictions for {self.split!r} of {self.benchmark} {self.task}"
        if self.logits.ndim != 2 or self.logits.shape[1] != task.labels.num_labels:
            raise ValueError(
                f"{where}: logits of shape {self.logits.shape} are not [examples, {task.labels.num_labels}], one for "
                "each label of the task: predict with a model that was trained on it."
            )
        lengths = {"rows": len(self.rows), "counts": len(self.counts)}
        if self.labels is not None:
            lengths["labels"] = len(self.labels)
        if len(set(lengths.values())) > 1 or sum(self.counts) != len(self.logits):
            raise ValueError(
                f"{where}: {len(self.logits)} rows of logits for {sum(self.counts)} examples, and "
                f"{', '.join(f'{number} {name}' for name, number in lengths.items())}: predict the whole split."
            )
        if not np.isfinite(self.logits).all():
            raise ValueError(f"{where}: some logits are infinite or no number, so the training has diverged.")

    @classmethod
    def of(
        cls, task: Task, split: str, rows: Sequence[Row], counts: Sequence[int], logits: np.ndarray
    ) -> "Predictions":
        """Keeps what is needed of a split.

        Args:
            task: The task.
            split: Name of the split.
            rows: Its rows as they were read, in the order of the logits. Without a column `idx`, as in a user's own
                files, they are known by their number.
            counts: Number of examples of each row.
            logits: Of all examples.

        Shape:
            logits: `[examples, num_labels]`.

        Raises:
            ValueError: If the parts do not fit together, or some rows have hidden labels and others not.
        """
        columns = _kept_columns(task)
        kept = [
            {"idx": number, **{name: row[name] for name in columns if name in row}} for number, row in enumerate(rows)
        ]
        return cls(
            task.benchmark, task.name, split, kept, [int(n) for n in counts], np.asarray(logits), _labels(task, rows)
        )

    @property
    def idx(self) -> list[Any]:
        """What each row is known by: a number, or several with their names."""
        return [row["idx"] for row in self.rows]

    @property
    def answers(self) -> list[Any]:
        """The answer to each row."""
        return answers_of(find_task(self.benchmark, self.task).input_format, self.rows, self.counts, self.logits)

    @property
    def labelled_rows(self) -> list[Row]:
        """The rows with their labels, as [`score`] takes them.

        Raises:
            ValueError: If the labels are hidden.
        """
        column = find_task(self.benchmark, self.task).label_column
        return [{**row, column: label} for row, label in zip(self.rows, self._known_labels(), strict=True)]

    @property
    def example_labels(self) -> list[int | float]:
        """The label of each example: of entities, whether each is right.

        Raises:
            ValueError: If the labels are hidden.
        """
        labels, format_ = self._known_labels(), find_task(self.benchmark, self.task).input_format
        if not isinstance(format_, Entities):
            return labels
        pairs = zip(self.rows, labels, strict=True)
        return [int(entity in right) for row, right in pairs for entity in format_.candidates(row)]

    def _known_labels(self) -> list[Any]:
        if self.labels is None:
            raise ValueError(f"The labels of {self.split!r} of {self.task} are hidden.")
        return self.labels

    def save(self, path: str | Path) -> None:
        """Writes a file of numpy's `npz` format, in place of one that may be there.

        Args:
            path: The file.
        """
        parts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "logits"}
        label_names = find_task(self.benchmark, self.task).label_names
        values = {"version": VERSION, "label_names": label_names, **parts}
        text = json.dumps(values, default=lambda value: value.tolist())
        with replaced_file(path) as file:
            np.savez_compressed(file, logits=self.logits, parts=np.frombuffer(text.encode(), dtype=np.uint8))

    @classmethod
    def load(cls, path: str | Path) -> "Predictions":
        """Reads what `save` wrote.

        Args:
            path: The file.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If it is another file, is damaged, was written by another version, or its logits are of other
                labels than the task has, or of these in another order.
        """
        try:
            zipfile.ZipFile(path).close()  # numpy would take any other file for a pickle
            with np.load(path, allow_pickle=False) as arrays:
                parts: Mapping[str, Any] = json.loads(arrays["parts"].tobytes())
                logits = arrays["logits"]
        except (zipfile.BadZipFile, zlib.error, KeyError) as error:
            raise ValueError(
                f"{path} holds no predictions, or is damaged: remove the folder of its training, and train again."
            ) from error
        if parts.get("version") != VERSION:
            raise ValueError(
                f"{path} is of version {parts.get('version')}, and not {VERSION}: remove the folder of its training, "
                "and train again."
            )
        label_names = find_task(parts["benchmark"], parts["task"]).label_names
        if tuple(parts["label_names"]) != label_names:
            raise ValueError(
                f"{path} has logits for the labels {', '.join(parts['label_names'])}, and {parts['task']} has "
                f"{', '.join(label_names)}: predict again."
            )
        fields = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in parts.items() if name in fields}, logits=logits)


def mean_probabilities(members: Sequence[Predictions], weights: Sequence[float] | None = None) -> Predictions:
    """Joins the predictions of several models: the mean of their probabilities, or of their values in a regression.

    The probabilities are those of a row's labels; of its choices; or for each of its entities, that it is right.

    Args:
        members: Predictions for the same split by different models, seeds or sizes.
        weights: A positive number for each, of which only the ratios count. All alike by default. Chosen on the rows
            that are reported, they would make the scores too good.

    Returns:
        Predictions whose logits are the logarithms of the mean probabilities.

    Raises:
        ValueError: If there are none, they are not for the same rows in the same order, or the weights do not fit.

    References:
        Lakshminarayanan, Pritzel and Blundell 2017, Simple and Scalable Predictive Uncertainty Estimation using Deep
        Ensembles, https://arxiv.org/abs/1612.01474
    """
    if not members:
        raise ValueError("An ensemble needs the predictions of at least one model.")
    first = members[0]
    for number, other in enumerate(members[1:], start=2):
        for name in ("benchmark", "task", "split", "idx", "counts", "labels"):
            ours, theirs = getattr(first, name), getattr(other, name)
            if ours != theirs:
                shown = f": {ours!r} and {theirs!r}" if isinstance(ours, str) else ""
                raise ValueError(
                    f"Predictions 1 and {number} of the ensemble differ in {name}{shown}. Predict the same rows in "
                    "the same order with all models."
                )
    shares = _shares([1.0] * len(members) if weights is None else weights, len(members))[:, None, None]
    logits = np.stack([np.asarray(member.logits, dtype=np.float64) for member in members])
    if logits.shape[-1] == 1:
        mean = (shares * logits).sum(axis=0)
    else:
        mean = np.logaddexp.reduce(log_softmax(logits) + np.log(shares), axis=0)
    return dataclasses.replace(first, logits=mean)


def _shares(weights: Sequence[float], number: int) -> np.ndarray:
    """The weights, checked, with a sum of 1."""
    if len(weights) != number:
        raise ValueError(f"{len(weights)} weights for {number} members of the ensemble: give one for each.")
    if unfit := [weight for weight in weights if not 0 < weight < math.inf]:
        raise ValueError(f"weight={unfit[0]} of a member of the ensemble has to be above 0 and finite.")
    return np.asarray(weights, dtype=np.float64) / sum(weights)


def _kept_columns(task: Task) -> tuple[str, ...]:
    """What is kept of the rows: by what they are known, what is chosen from, and what makes a pair of two of them."""
    entities = ("entities",) if isinstance(task.input_format, Entities) else ()
    pairs = ("hypothesis",) if "gender_parity" in task.metrics else ()
    return ("idx", *entities, *pairs)


def _labels(task: Task, rows: Sequence[Row]) -> list[Any] | None:
    """The right answer to each row; None if they are hidden, as -1 or, of entities, as no answers."""
    if isinstance(task.input_format, Entities):
        labels: list[Any] = [list(row.get("answers") or ()) for row in rows]
        hidden = [not label for label in labels]
    else:
        kind = float if task.label_range is not None else int
        given = [row.get("label") for row in rows]
        hidden = [label is None or label == -1 for label in given]
        labels = [None if is_hidden else kind(label) for label, is_hidden in zip(given, hidden, strict=True)]
    if all(hidden):
        return None
    if any(hidden):
        number = hidden.index(True)
        raise ValueError(f"Row {number} of {task.name} has no label, but others have: leave it out.")
    return labels
