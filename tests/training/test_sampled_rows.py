import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_elastic.training.sampled_rows import KEPT_ROWS, SampledRows, length_of


def rows_of_length(*lengths):
    return [{"input_ids": list(range(5, 5 + length)), "labels": i} for i, length in enumerate(lengths)]


class Indexed(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


@pytest.mark.parametrize("kind", [list, Dataset.from_list, Indexed, Stream])
def test_the_first_row_and_the_longest_ones_are_among_them(kind):
    rows = rows_of_length(*np.random.default_rng(0).integers(3, 40, size=300).tolist(), 41, 2)
    sampled = SampledRows.of(kind(rows), seed=1)
    assert sampled.total == (None if kind is Stream else 302)
    assert sampled.rows[0] == rows[0]
    assert len(sampled.rows) == len(sampled.longest) == KEPT_ROWS
    assert sampled.longest[0] == rows[300]
    lengths = [len(row["input_ids"]) for row in sampled.longest]
    assert lengths == sorted((len(row["input_ids"]) for row in rows), reverse=True)[:KEPT_ROWS]
    assert sampled.lengths.tolist() == [len(row["input_ids"]) for row in rows]


def test_the_choice_depends_on_the_seed_alone():
    rows = rows_of_length(*[4] * 200)
    first, second, other = (SampledRows.of(rows, seed).rows for seed in (1, 1, 2))
    assert first == second != other


def test_choices_are_as_long_as_the_longest_of_them():
    row = {"input_ids": [[5, 6, 7], [5, 6]]}
    assert length_of(row) == 3
    assert SampledRows.of(Dataset.from_list([row, {"input_ids": [[5], [6, 7]]}]), 0).lengths.tolist() == [3, 2]
    assert length_of({"input_ids": torch.ones(7, dtype=torch.long)}) == 7
    assert length_of({"text": "three words here"}) == length_of((1, 2)) == 0


def test_cut_rows_are_told_by_a_spike_at_the_longest_length():
    assert SampledRows.of(rows_of_length(3, 5, 6, 7, 8, 8, 8, 8), 0).cut_share == 0.5
    assert SampledRows.of(rows_of_length(3, 7, 7, 8, 8, 8), 0).cut_share == 0
    assert SampledRows.of([{"text": "no tokens"}] * 8, 0).cut_share == 0


def test_no_rows():
    assert SampledRows.of([], 0).everything == SampledRows.of(Stream([]), 0).everything == []
