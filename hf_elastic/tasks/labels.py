"""From a column of labels to what a classification head is trained on.

What is distinctive: labels are turned into names first (a ClassLabel's names, strings, numbers written out) and only
then into ids, so that all sources go one way and every error can show the label as the user wrote it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .sources import require_datasets

SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
PROBLEM_TYPES = (SINGLE_LABEL, MULTI_LABEL, REGRESSION)


@dataclass(frozen=True)
class Labels:
    """The labels of a data set: the kind of problem, and the names in the order of their ids.

    Args:
        problem_type: One of transformers' `problem_type` values.
        names: Label names; empty for regression.
    """

    problem_type: str
    names: tuple[str, ...] = ()

    @property
    def num_labels(self) -> int:
        """Outputs that the head needs: one for regression."""
        return max(1, len(self.names))

    @property
    def model_settings(self) -> dict[str, Any]:
        """Configuration that a sequence-classification head needs: number and names of labels, kind of problem."""
        names = dict(enumerate(self.names)) or {0: "LABEL_0"}
        return {
            "num_labels": self.num_labels,
            "id2label": names,
            "label2id": {name: i for i, name in names.items()},
            "problem_type": self.problem_type,
        }

    @property
    def feature(self) -> Any:
        """The `datasets` feature of the encoded column."""
        datasets = require_datasets()
        if self.problem_type == SINGLE_LABEL:
            return datasets.ClassLabel(names=list(self.names))
        number = datasets.Value("float32")
        return number if self.problem_type == REGRESSION else datasets.List(number, length=len(self.names))

    def encode(self, column: "LabelColumn", split: str) -> list[Any]:
        """Encodes a split: ids for one label per row, 0/1 vectors `[num_labels]` for several, floats for regression.

        Raises:
            ValueError: If a label is not among `names`; it names the label, its row and the names there are.
        """
        if self.problem_type == REGRESSION:
            return column.numbers(split)
        if self.problem_type == MULTI_LABEL and column.holds_vectors:
            return column.vectors(split, len(self.names))
        ids = {name: i for i, name in enumerate(self.names)}
        encoded: list[Any] = []
        for row, value in enumerate(column.named(self.names)):
            labels = value if self.problem_type == MULTI_LABEL else [value]
            for label in labels:
                if label not in ids:
                    raise ValueError(
                        f"Label {label!r} in row {row} of the {split} data is none of the {len(ids)} labels "
                        f"{_shorten(self.names)}: correct the row, or give all labels with label_names."
                    )
            if self.problem_type == SINGLE_LABEL:
                encoded.append(ids[value])
            else:
                encoded.append([float(name in labels) for name in self.names])
        return encoded


class LabelColumn:
    """One split's labels as they were read, with the feature that describes them.

    Args:
        values: Labels in row order, without nulls.
        feature: Their `datasets` feature.
        name: Name of the column, for errors.
    """

    def __init__(self, values: list[Any], feature: Any, name: str) -> None:
        datasets = require_datasets()
        self.values, self.name = values, name
        self.is_list = isinstance(feature, datasets.List | datasets.LargeList)
        item = feature.feature if self.is_list else feature
        self.class_names = tuple(item.names) if isinstance(item, datasets.ClassLabel) else None
        dtype = getattr(item, "dtype", type(item).__name__)
        self.is_float = str(dtype).startswith(("float", "double", "decimal"))
        self.is_integer = self.class_names is None and str(dtype).startswith(("int", "uint"))
        is_name = self.class_names is not None or "string" in str(dtype)
        # Lists of names are label sets; lists of numbers or booleans have one entry per label.
        self.holds_vectors = self.is_list and not is_name
        if not (is_name or self.is_float or self.is_integer or dtype == "bool"):
            raise ValueError(
                f"Column {name!r} holds {dtype}, which is no label: labels are strings, numbers or lists of them."
            )

    def named(self, names: Sequence[str] = ()) -> list[Any]:
        """Labels as names. Plain integers are ids into `names` where those are not numbers themselves."""
        lookup = self.class_names
        if self.is_integer and names and not any(name.lstrip("-").isdigit() for name in names):
            lookup = tuple(names)

        def name_of(value: Any) -> str:
            return lookup[value] if lookup and 0 <= value < len(lookup) else str(value)

        return [[name_of(v) for v in value] if self.is_list else name_of(value) for value in self.values]

    def numbers(self, split: str) -> list[float]:
        """Labels of a regression.

        Raises:
            ValueError: If one is not a number.
        """
        numbers = []
        for row, value in enumerate(self.values):
            try:
                numbers.append(float(value))
            except ValueError:
                raise ValueError(f"Label {value!r} in row {row} of the {split} data is not a number.") from None
        return numbers

    def vectors(self, split: str, size: int) -> list[list[float]]:
        """Labels of a multi-label problem that come as 0/1 vectors.

        Raises:
            ValueError: If a vector has another length than `size`, or another value than 0 and 1.
        """
        for row, value in enumerate(self.values):
            if len(value) != size or not set(value) <= {0, 1}:
                raise ValueError(f"Row {row} of the {split} data: {value} is not a vector of {size} zeros and ones.")
        return [[float(v) for v in value] for value in self.values]


def infer_labels(
    column: LabelColumn,
    problem_type: str | None = None,
    label_names: Sequence[str] | None = None,
    num_labels: int | None = None,
) -> Labels:
    """Works out the labels from the training split and what the caller knows about them.

    Args:
        column: Labels of the training split.
        problem_type: Kind of problem. Default: regression for floats or `num_labels=1`, several labels for lists, else
            one label.
        label_names: Names in the order of their ids. Default: a ClassLabel's names, else those that occur, sorted.
        num_labels: Number of labels that there have to be.

    Raises:
        ValueError: If these do not fit together; it names the value.
    """
    if problem_type is None:
        if column.is_list:
            problem_type = MULTI_LABEL
        else:
            problem_type = REGRESSION if column.is_float or num_labels == 1 else SINGLE_LABEL
    if problem_type not in PROBLEM_TYPES:
        raise ValueError(f"problem_type={problem_type!r} is none of {', '.join(PROBLEM_TYPES)}.")
    if column.is_list != (problem_type == MULTI_LABEL):
        kind = "lists" if column.is_list else "single values"
        raise ValueError(f"problem_type={problem_type!r}, but column {column.name!r} holds {kind}.")
    if problem_type == REGRESSION:
        if label_names or num_labels not in (None, 1):
            given = f"label_names={list(label_names)}" if label_names else f"num_labels={num_labels}"
            raise ValueError(f"{given}, but column {column.name!r} holds numbers: regression has one output.")
        return Labels(REGRESSION)
    names = tuple(label_names or column.class_names or _names_that_occur(column, num_labels))
    if len(set(names)) != len(names):
        raise ValueError(f"label_names={list(names)} repeats a name.")
    if num_labels not in (None, len(names)):
        raise ValueError(
            f"num_labels={num_labels}, but column {column.name!r} has {len(names)} labels: {_shorten(names)}. A "
            "checkpoint that has a head for other labels loses it by `hf-elastic convert --task feature-extraction`."
        )
    if len(names) < 2:
        raise ValueError(f"Column {column.name!r} has only the label {names[0]!r}: classification needs two or more.")
    return Labels(problem_type, names)


def _names_that_occur(column: LabelColumn, num_labels: int | None) -> list[str]:
    if column.holds_vectors:
        return [str(i) for i in range(len(column.values[0]))]
    if column.is_integer and num_labels and all(0 <= value < num_labels for value in column.values):
        return [str(i) for i in range(num_labels)]  # ids of which some may not occur
    named = column.named()
    found = {name for value in named for name in value} if column.is_list else set(named)
    return sorted(found, key=int) if column.is_integer else sorted(found)


def _shorten(names: Sequence[str], shown: int = 12) -> str:
    more = f", … ({len(names) - shown} more)" if len(names) > shown else ""
    return ", ".join(repr(name) for name in names[:shown]) + more
