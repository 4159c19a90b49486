"""Rows of a dataset to try things with: the first one, the longest ones and random ones."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from transformers.trainer_utils import has_length

# Rows whose lengths are looked at where a dataset does not tell them all at once.
SAMPLED_LENGTHS = 2000
# Rows of each kind that are kept.
KEPT_ROWS = 64
_COLUMN = "input_ids"
_ROWS_AT_ONCE = 10_000
# How many more rows have the length at which the others were cut than have one token less.
_SPIKE = 3


@dataclass(frozen=True)
class SampledRows:
    """Some rows of a dataset.

    Args:
        rows (`list[Any]`): The first one, and random ones in the order of the dataset.
        longest (`list[Any]`): The longest ones, the longest first.
        lengths (`np.ndarray`): Tokens of each row that was looked at; 0 for rows without `input_ids`.
        total (`int`, *optional*): Rows of the dataset; none for a stream.

    Example:
        >>> SampledRows.of([{"input_ids": [5, 6]}, {"input_ids": [5, 6, 7]}], seed=0).longest[0]
        {'input_ids': [5, 6, 7]}
    """

    rows: list[Any]
    longest: list[Any]
    lengths: np.ndarray
    total: int | None

    @classmethod
    def of(cls, dataset: Any, seed: int) -> "SampledRows":
        """Reads the rows; of a stream the first ones.

        Args:
            dataset: The dataset. A list and one of the `datasets` library tell the lengths of all their rows, others
                those of random ones.
            seed: Seed of the choice.
        """
        if not (hasattr(dataset, "__getitem__") and has_length(dataset)):
            read = list(islice(dataset, SAMPLED_LENGTHS))
            lengths = np.array([length_of(row) for row in read])
            return cls(read[:KEPT_ROWS], [read[i] for i in _largest(lengths)], lengths, None)
        total, rng = len(dataset), random.Random(seed)
        lengths = _all_lengths(dataset)
        candidates = list(range(total))
        if lengths is None:
            candidates = _draw(total, SAMPLED_LENGTHS, rng)
            lengths = np.array([length_of(dataset[i]) for i in candidates])
        longest = [dataset[candidates[i]] for i in _largest(lengths)]
        return cls([dataset[i] for i in _draw(total, KEPT_ROWS, rng)], longest, lengths, total)

    @property
    def everything(self) -> list[Any]:
        """All rows that were kept."""
        return [*self.rows, *self.longest]

    @property
    def cut_share(self) -> float:
        """The share of the rows that were probably cut: a length that many have, and few have one token less."""
        longest = self.lengths.max(initial=0)
        number, one_less = ((self.lengths == length).sum() for length in (longest, longest - 1))
        return float(number / len(self.lengths)) if number > _SPIKE * max(one_less, 1) and longest else 0.0


def length_of(row: Any) -> int:
    """Gives the number of tokens of a row; of several choices, that of the longest."""
    tokens = row.get(_COLUMN) if isinstance(row, Mapping) else None
    if tokens is None:
        return 0
    return max(map(len, tokens)) if len(tokens) and _is_sequence(tokens[0]) else len(tokens)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) or getattr(value, "ndim", 0) > 0


def _all_lengths(dataset: Any) -> np.ndarray | None:
    """The lengths of all rows, of a dataset that tells them without the work of reading each row."""
    if isinstance(dataset, list):
        return np.array([length_of(row) for row in dataset])
    if not hasattr(dataset, "select_columns") or _COLUMN not in dataset.column_names:
        return None
    lengths = []
    for batch in dataset.select_columns([_COLUMN]).with_format("arrow").iter(_ROWS_AT_ONCE):
        for chunk in batch.column(_COLUMN).chunks:
            is_flat = hasattr(chunk, "value_lengths") and not hasattr(chunk.type.value_type, "value_type")
            rows = [] if is_flat else chunk.to_pylist()
            lengths += chunk.value_lengths().to_pylist() if is_flat else [length_of({_COLUMN: row}) for row in rows]
    return np.array(lengths)


def _draw(total: int, number: int, rng: random.Random) -> list[int]:
    """The first index and random ones, in order."""
    return sorted({*range(min(total, 1)), *rng.sample(range(total), min(number, total))})[:number]


def _largest(lengths: np.ndarray) -> list[int]:
    return np.argsort(-lengths, kind="stable")[:KEPT_ROWS].tolist()
