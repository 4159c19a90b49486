import datetime
from collections import OrderedDict, UserDict
from types import MappingProxyType

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset
from transformers import BatchEncoding

from hf_elastic.training.data_fingerprint import HASHED_ROWS, DataFingerprint

datasets = pytest.importorskip("datasets")

COLUMNS = {"text": ["one", "two", "three"], "label": [0, 1, 0]}


def test_rows_columns_and_hash():
    data = DataFingerprint.of(datasets.Dataset.from_dict(COLUMNS))
    assert (data.rows, data.columns, data.hashed_rows) == (3, ["text", "label"], 3)
    assert len(data.content_hash) == 64 and data.fingerprint


def test_the_hash_is_of_the_content_alone(tmp_path):
    """However the data were made, stored and formatted."""
    direct = datasets.Dataset.from_dict(COLUMNS)
    direct.to_json(tmp_path / "data.jsonl")
    loaded = datasets.load_dataset("json", data_files=str(tmp_path / "data.jsonl"), cache_dir=tmp_path)["train"]
    formatted = direct.map(lambda row: {"label": row["label"]}).with_format("torch")
    drawn = direct.with_transform(lambda batch: {"text": [str(np.random.rand())] * len(batch["text"])})
    rows = [{"label": row["label"], "text": row["text"]} for row in direct]
    hashes = [DataFingerprint.of(data).content_hash for data in (direct, loaded, formatted, drawn, rows)]
    assert len(set(hashes)) == 1
    assert DataFingerprint.of(loaded).fingerprint != DataFingerprint.of(direct).fingerprint


@pytest.mark.parametrize("change", [{"label": [0, 1, 1]}, {"text": ["two", "one", "three"]}, {"more": [1, 2, 3]}])
def test_other_content_has_another_hash(change):
    ours = DataFingerprint.of(datasets.Dataset.from_dict(COLUMNS)).content_hash
    assert ours != DataFingerprint.of(datasets.Dataset.from_dict({**COLUMNS, **change})).content_hash


def test_large_data_are_hashed_in_part():
    rows = [{"labels": i} for i in range(3 * HASHED_ROWS)]
    data = DataFingerprint.of(rows)
    assert (data.rows, data.hashed_rows) == (3 * HASHED_ROWS, HASHED_ROWS)
    rows[3] = {"labels": -1}
    assert DataFingerprint.of(rows).content_hash != data.content_hash


def test_tensors_bytes_and_times_have_a_hash():
    rows = [{"ids": torch.tensor([1, 2]), "image": b"\x00\xff", "day": datetime.date(2026, 1, 31)}]
    plain = [{"ids": [1, 2], "image": "00ff", "day": "2026-01-31"}]
    assert DataFingerprint.of(rows).content_hash == DataFingerprint.of(plain).content_hash


@pytest.mark.parametrize("kind", [BatchEncoding, UserDict, OrderedDict, MappingProxyType])
def test_rows_of_any_mapping_are_those_of_a_dict(kind):
    rows = [{"input_ids": [1, 2], "labels": 0}, {"input_ids": [7, 8, 9], "labels": 1}]
    fingerprint = DataFingerprint.of([kind(row) for row in rows])
    assert fingerprint == DataFingerprint.of(rows)
    assert fingerprint.columns == ["input_ids", "labels"]
    assert fingerprint.content_hash != DataFingerprint.of([kind(row) for row in rows[::-1]]).content_hash


@pytest.mark.parametrize("row", [object(), {"text": object()}, {"text": np.array([object()])}, {("a", "b"): 1}])
def test_rows_of_unknown_content_have_no_hash(row):
    fingerprint = DataFingerprint.of([{"text": "a"}, row])
    assert (fingerprint.rows, fingerprint.content_hash, fingerprint.hashed_rows) == (2, None, 0)


def test_data_that_may_give_other_rows_are_not_read():
    class Random(Dataset):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> None:
            raise AssertionError("read")

    assert DataFingerprint.of(Random()) == DataFingerprint(rows=5)
    stream = datasets.Dataset.from_dict(COLUMNS).to_iterable_dataset()
    assert DataFingerprint.of(stream).content_hash is None
    assert DataFingerprint.of(stream).columns == ["text", "label"]
    assert DataFingerprint.of([]) == DataFingerprint(rows=0)
