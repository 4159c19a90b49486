"""What a task of a benchmark is: everything about it that is not code, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .input_formats import InputFormat
from .labels import REGRESSION, SINGLE_LABEL, Labels


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task, as it is on the Hub and as it is scored.

    Args:
        name: What it is called on the Hub, e.g. `"rte"`.
        benchmark: `"glue"` or `"super_glue"`.
        title: Name for readers.
        input_format: How its rows are read.
        metrics: Names of its scores, which are averaged for the benchmark's.
        label_names: Names of the labels in the order of their ids; none for a regression.
        label_column: What holds the right answers.
        label_range: Smallest and largest label of a regression.
        train_split: Split to train on; None for a diagnostic, which a model of another task answers.
        validation_splits: Splits with labels to report on.
        test_splits: Splits whose labels are hidden, and the file that each is submitted in.
        submitted_labels: What is written into that file for each label id. Default: `label_names`.
        form_of: For another form of a task, with the same rows, the task: only one of them counts.
        model_of: For a diagnostic, the task whose model answers it.
        settings: What [`TrainingSettings`] suit it, apart from the defaults.
        reference: Where it comes from.
    """

    name: str
    benchmark: str
    title: str
    input_format: InputFormat
    metrics: tuple[str, ...]
    label_names: tuple[str, ...] = ()
    label_column: str = "label"
    label_range: tuple[float, float] | None = None
    train_split: str | None = "train"
    validation_splits: tuple[str, ...] = ("validation",)
    test_splits: Mapping[str, str]
    submitted_labels: tuple[Any, ...] | None = None
    form_of: str | None = None
    model_of: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    reference: str

    @property
    def labels(self) -> Labels:
        """Kind of problem and names of the labels."""
        return Labels(SINGLE_LABEL, self.label_names) if self.label_names else Labels(REGRESSION)

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits that there may be."""
        train = () if self.train_split is None else (self.train_split,)
        return (*train, *self.validation_splits, *self.test_splits)
