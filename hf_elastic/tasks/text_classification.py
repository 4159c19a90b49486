"""Text classification and regression on one text or a pair: from any labelled data to what a `Trainer` takes.

What is distinctive: everything that can be wrong with a data set is found here, before a model is loaded, and said
with the split, the row and the value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.utils import logging

from .labels import SINGLE_LABEL, LabelColumn, Labels, infer_labels
from .metrics import compute_metrics
from .row_checks import check_rows
from .sources import load_splits, require_datasets
from .splits import stratified_split

if TYPE_CHECKING:
    import datasets
    from transformers import EvalPrediction, PreTrainedTokenizerBase

    from .sources import Source

logger = logging.get_logger(__name__)

_LABEL_COLUMNS = ("label", "labels", "target", "class", "category", "score")
_TEXT_COLUMNS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("text",),
    ("sentence",),
)


@dataclass(frozen=True)
class TextClassificationData:
    """Labelled text, checked and with encoded labels.

    Args:
        train: Rows to train on, with the text columns and the label column alone.
        validation: Rows to choose settings by.
        text_columns: Names of one column, or of the two of a pair.
        label_column: Name of the column of labels.
        labels: Kind of problem and label names.
        test: Rows to report on, if there are any.
    """

    train: "datasets.Dataset"
    validation: "datasets.Dataset"
    text_columns: tuple[str, ...]
    label_column: str
    labels: Labels
    test: "datasets.Dataset | None" = None

    @property
    def splits(self) -> "dict[str, datasets.Dataset]":
        """The splits there are, by name."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: split for name, split in splits.items() if split is not None}

    @property
    def model_settings(self) -> dict[str, Any]:
        """Configuration that a sequence-classification head needs, see [`Labels.model_settings`]."""
        return self.labels.model_settings

    @property
    def compute_metrics(self) -> "Callable[[EvalPrediction], dict[str, float]]":
        """The function that a `Trainer` takes as `compute_metrics`."""
        return partial(compute_metrics, problem_type=self.labels.problem_type)

    def limit(self, train_rows: int, seed: int = 42) -> "TextClassificationData":
        """Keeps a part of the training rows, with the labels in the same proportions.

        Args:
            train_rows: Number of rows to keep; where there are no more than that, all are kept. At least one row of
                each label stays.
            seed: Seed of the choice.
        """
        if train_rows < 1:
            raise ValueError(f"train_rows={train_rows}: keep at least one row.")
        if train_rows >= len(self.train):
            return self
        strata = _strata(self.train, self.label_column, self.labels)
        kept, _ = stratified_split(strata, 1 - train_rows / len(self.train), seed)
        return replace(self, train=self.train.select(kept))

    def with_test(self, seed: int = 42) -> "TextClassificationData":
        """Halves the validation rows where there are no test rows, so that what is chosen by some is tested on others.

        Args:
            seed: Seed of the division.

        Raises:
            ValueError: If there are too few rows.
        """
        if self.test is not None:
            return self
        kept, tested = stratified_split(_strata(self.validation, self.label_column, self.labels), 0.5, seed)
        if not kept or not tested:
            raise ValueError(
                f"{len(self.validation)} validation rows are too few to choose by a half and test on the other: give "
                "test rows, or more validation rows."
            )
        return replace(self, validation=self.validation.select(kept), test=self.validation.select(tested))


def read(
    source: "Source",
    split: str | None = None,
    *,
    config_name: str | None = None,
    validation: str | Path | None = None,
    test: str | Path | None = None,
    text_columns: str | Sequence[str] | None = None,
    label_column: str | None = None,
    label_names: Sequence[str] | None = None,
    num_labels: int | None = None,
    problem_type: str | None = None,
    validation_fraction: float = 0.1,
    seed: int = 42,
) -> TextClassificationData:
    """Reads labelled text from any `datasets` source and checks it.

    Args:
        source: A csv, tsv, json, jsonl or parquet file, a folder of such files named after their splits, a Hub id, or
            a loaded data set.
        split: Split to train on. Default: `train`, or the only one.
        config_name: Configuration of a Hub data set.
        validation: Split or file to validate on. Default: a split of a usual name; where there is none, a part of the
            training rows is held out.
        test: Split or file to report on. Default: the split `test` if there is one with labels.
        text_columns: One or two columns of text. Default: found by their names and types.
        label_column: Column of labels. Default: found by its name and type.
        label_names: Names of the labels in the order of their ids. Default: those of the ClassLabel, else sorted.
        num_labels: Number of labels that there have to be.
        problem_type: transformers' name for the kind of problem. Default: regression for float labels, multi-label for
            lists (of names, or 0/1 vectors), else single-label.
        validation_fraction: Part of the training rows to hold out where there is no validation split.
        seed: Seed of that choice.

    Returns:
        The checked splits with encoded labels.

    Raises:
        FileNotFoundError: If there is no such path.
        ImportError: If `datasets` is not installed.
        ValueError: If a column is missing, a split is empty, a cell is null, or labels do not fit.
    """
    splits = load_splits(source, config_name, split, validation, test)
    if test is None and "test" in splits and _labels_are_hidden(splits["test"], label_column):
        logger.warning("The test split has no labels: it is left out.")
        del splits["test"]
    texts, label = _find_columns(splits["train"], text_columns, label_column)
    checked = {name: _check_rows(rows, name, texts, label) for name, rows in splits.items()}
    labels = infer_labels(checked["train"][1], problem_type, label_names, num_labels)
    encoded = {name: _encode_labels(*rows, labels, name) for name, rows in checked.items()}
    if "validation" not in encoded:
        encoded |= _hold_out(encoded["train"], label, labels, validation_fraction, seed)
    elif labels.problem_type == SINGLE_LABEL:
        _check_seen_in_training(encoded, label, labels)
    return TextClassificationData(**encoded, text_columns=texts, label_column=label, labels=labels)


def encode(
    data: TextClassificationData, tokenizer: "PreTrainedTokenizerBase", max_length: int | None = None
) -> "dict[str, datasets.Dataset]":
    """Tokenises every split; padding is left to the collator, which pads each batch to its longest row.

    Args:
        data: The labelled text.
        tokenizer: Tokenizer of the checkpoint.
        max_length: Tokens to which a text or pair is cut. Default: the tokenizer's limit.

    Returns:
        Data sets by split name, with the tokenizer's columns and `labels`.

    Raises:
        ValueError: If `max_length` is beyond what the tokenizer's model takes.
    """
    limit = tokenizer.model_max_length
    if max_length is not None and not 3 <= max_length <= limit:
        raise ValueError(f"max_length={max_length}: this tokenizer's model takes from 3 to {limit} tokens.")

    def tokenize(rows: dict[str, list[Any]]) -> dict[str, Any]:
        encoded = tokenizer(*(rows[column] for column in data.text_columns), truncation=True, max_length=max_length)
        return {**encoded, "labels": rows[data.label_column]}

    return {
        name: split.map(tokenize, batched=True, remove_columns=split.column_names, desc=f"Tokenising {name}")
        for name, split in data.splits.items()
    }


def _labels_are_hidden(test: "datasets.Dataset", label_column: str | None) -> bool:
    """Whether a test split comes without labels, as GLUE's do: no such column, or -1 throughout."""
    label = label_column or next((name for name in _LABEL_COLUMNS if name in test.column_names), None)
    return label not in test.column_names or all(value in (-1, None) for value in test[label])


def _find_columns(
    train: "datasets.Dataset", text_columns: str | Sequence[str] | None, label_column: str | None
) -> tuple[tuple[str, ...], str]:
    there = train.column_names
    listing = f"The columns are: {', '.join(there)}."
    label = label_column or next((name for name in _LABEL_COLUMNS if name in there), None)
    if label is None:
        raise ValueError(f"Cannot tell which column holds the labels: name it with label_column. {listing}")
    if isinstance(text_columns, str):
        text_columns = (text_columns,)
    texts = tuple(text_columns) if text_columns else _guess_text_columns(train, label)
    if not 1 <= len(texts) <= 2:
        raise ValueError(
            f"Cannot tell which columns hold the texts: name one, or the two of a pair, with text_columns. {listing}"
        )
    for name in (*texts, label):
        if name not in there:
            raise ValueError(f"There is no column {name!r}. {listing}")
    if len({*texts, label}) <= len(texts):
        raise ValueError(f"text_columns={list(texts)}, label_column={label!r}: a column is named twice. {listing}")
    return texts, label


def _guess_text_columns(train: "datasets.Dataset", label: str) -> tuple[str, ...]:
    strings = [
        name
        for name, feature in train.features.items()
        if name != label and "string" in str(getattr(feature, "dtype", ""))
    ]
    known = next((names for names in _TEXT_COLUMNS if set(names) <= set(strings)), None)
    return known or tuple(strings)


def _check_rows(
    dataset: "datasets.Dataset", split: str, texts: tuple[str, ...], label: str
) -> tuple[dict[str, list[str]], LabelColumn]:
    """The split's texts by column and its labels, none of them null."""
    table = check_rows(dataset, split, [*texts, label])
    for name in texts:
        if "string" not in str(table[name].type):
            raise ValueError(f"Column {name!r} of the {split} data holds {table[name].type}, not text.")
    values = {name: table[name].to_pylist() for name in texts}
    return values, LabelColumn(table[label].to_pylist(), dataset.features[label], label)


def _encode_labels(texts: dict[str, list[str]], column: LabelColumn, labels: Labels, split: str) -> "datasets.Dataset":
    datasets = require_datasets()
    features = datasets.Features({**{name: datasets.Value("string") for name in texts}, column.name: labels.feature})
    return datasets.Dataset.from_dict({**texts, column.name: labels.encode(column, split)}, features=features)


def _strata(rows: "datasets.Dataset", label: str, labels: Labels) -> list[Any]:
    """What a split balances: the label; nothing for several labels or numbers."""
    return list(rows[label]) if labels.problem_type == SINGLE_LABEL else [0] * len(rows)


def _hold_out(
    rows: "datasets.Dataset", label: str, labels: Labels, fraction: float, seed: int
) -> "dict[str, datasets.Dataset]":
    kept, held_out = stratified_split(_strata(rows, label, labels), fraction, seed)
    if not held_out:
        raise ValueError(
            f"{len(rows)} training rows are too few to hold out {fraction:.0%} of them: give a validation split or "
            "file, or a larger validation_fraction."
        )
    return {"train": rows.select(kept), "validation": rows.select(held_out)}


def _check_seen_in_training(splits: "dict[str, datasets.Dataset]", label: str, labels: Labels) -> None:
    seen = set(splits["train"][label])
    for split, rows in splits.items():
        unseen = sorted(set(rows[label]) - seen)
        if unseen:
            names = ", ".join(repr(labels.names[i]) for i in unseen)
            raise ValueError(
                f"The {split} data has labels that never occur in training: {names}. Add rows with them to the "
                "training data, or remove them."
            )
