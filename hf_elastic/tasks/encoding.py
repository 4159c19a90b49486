"""From the rows of a split to what a `Trainer` takes.

What is distinctive: rows that become several examples, as ReCoRD's, and rows whose choices are one example, as COPA's,
go the same way as all others; the number of examples of each row comes along, for [`answers_of`]. The tokens are kept
on disk by their preprocessing, so that another process finds them whatever its tokenizer was used for before.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from transformers import DataCollatorForMultipleChoice, DataCollatorWithPadding

from ..training.collators import UnpaddingCollator
from .input_formats import Example
from .preprocessing import Preprocessing
from .sources import require_datasets
from .task import Task
from .truncation import tokenize

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase

# Column for the number of the row that an example is of; it is gone at the end.
_ROW = "row"


class EncodedSplit(NamedTuple):
    """A split's examples, one row's after the other's, and how many each row has."""

    dataset: "datasets.Dataset"
    counts: list[int]


def encode_split(
    task: Task,
    rows: "datasets.Dataset",
    tokenizer: "PreTrainedTokenizerBase",
    max_length: int,
    with_labels: bool = True,
) -> EncodedSplit:
    """Tokenises the rows of a split; padding is left to the collator, which pads each batch to its longest row.

    Args:
        task: The task.
        rows: Rows with the columns of the task's schema.
        tokenizer: Tokenizer of the checkpoint.
        max_length: Tokens that an example may have.
        with_labels: Whether there are labels to train on or to score with; `False` for a test split.

    Returns:
        The tokenizer's columns, and `labels`. Of multiple choice each row has lists with one entry for each choice,
        as [`~transformers.DataCollatorForMultipleChoice`] takes them.

    Raises:
        ImportError: If `datasets` is not installed.
        ValueError: If there is no row, a label is missing or -1, spans do not fit into `max_length`, or it does not
            suit the tokenizer.
    """
    datasets = require_datasets()
    preprocessing = Preprocessing.of(task, tokenizer, max_length)
    if len(rows) == 0:
        raise ValueError(f"There is no row of {task.name} to tokenise: give a split with rows.")
    # Not left to `datasets`, whose hash of a tokenizer may change with what it was used for.
    settings = [rows._fingerprint, preprocessing.to_dict(), repr(task.input_format), with_labels]
    encoded = rows.map(
        _encode_batch,
        with_indices=True,
        batched=True,
        remove_columns=rows.column_names,
        fn_kwargs={"task": task, "tokenizer": tokenizer, "max_length": max_length, "with_labels": with_labels},
        new_fingerprint=datasets.fingerprint.Hasher.hash(settings),
        desc=f"Tokenising {task.name}",
    )
    counts = np.bincount(encoded[_ROW][:], minlength=len(rows)).tolist()
    return EncodedSplit(encoded.remove_columns(_ROW), counts)


def collator_for(head: str, tokenizer: "PreTrainedTokenizerBase") -> Callable[[list[Any]], dict[str, Any]]:
    """Gives what makes batches for a head.

    Args:
        head (`str`):
            One of the tasks of [`convert`].
        tokenizer (`PreTrainedTokenizerBase`):
            Pads them.
    """
    if head == "multiple-choice":
        return DataCollatorForMultipleChoice(tokenizer)
    return UnpaddingCollator(DataCollatorWithPadding(tokenizer))


def _encode_batch(
    batch: dict[str, list[Any]],
    numbers: list[int],
    task: Task,
    tokenizer: "PreTrainedTokenizerBase",
    max_length: int,
    with_labels: bool,
) -> dict[str, list[Any]]:
    rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
    examples = [task.input_format.examples(row) for row in rows]
    encoded: dict[str, list[Any]] = dict(
        tokenize([one for of_row in examples for one in of_row], tokenizer, max_length)
    )
    if task.input_format.head == "multiple-choice":
        encoded = {name: list(_grouped(values, examples)) for name, values in encoded.items()}
        examples = [of_row[:1] for of_row in examples]  # the choices have one label
    encoded[_ROW] = [number for number, of_row in zip(numbers, examples, strict=True) for _ in of_row]
    if with_labels:
        labelled = zip(encoded[_ROW], (one for of_row in examples for one in of_row), strict=True)
        encoded["labels"] = [_label(task, row, example) for row, example in labelled]
    return encoded


def _grouped(values: list[Any], examples: list[list[Example]]) -> Iterator[list[Any]]:
    remaining = iter(values)
    for of_row in examples:
        yield [next(remaining) for _ in of_row]


def _label(task: Task, row: int, example: Example) -> int | float:
    if example.label is None or example.label == -1:
        raise ValueError(
            f"Row {row} of {task.name} has no label ({example.label}): test splits have none, encode those with "
            "with_labels=False; of other splits, remove the row."
        )
    return example.label if task.label_names else float(example.label)
