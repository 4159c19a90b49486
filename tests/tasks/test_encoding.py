"""The rows of every task become what a Trainer's collators take, and are tokenised once for all processes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorForMultipleChoice, DataCollatorWithPadding

from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.encoding import encode_split
from hf_elastic.tasks.input_formats import Texts, answers_of
from hf_elastic.tasks.task_data import read_task

from .benchmark_rows import LABEL_NAMES, dataset_of, real_rows, rows_of, write_task
from .tiny_tokenizers import byte_level_bpe, unigram, wordpiece

RTE = find_task("glue", "rte")


@pytest.fixture(scope="module")
def tokenizer(minilm):
    return wordpiece(minilm)


@pytest.mark.parametrize(("benchmark", "name"), list(LABEL_NAMES))
@pytest.mark.parametrize("kind", ["WordPiece", "byte-level BPE", "Unigram"])
def test_every_task_becomes_the_tokens_of_its_examples(benchmark, name, kind, tokenizer):
    tokenizer = {"WordPiece": lambda: tokenizer, "byte-level BPE": byte_level_bpe, "Unigram": unigram}[kind]()
    task = find_task(benchmark, name)
    split = task.train_split or "test"
    rows, with_labels = rows_of(benchmark, name, split), name != "ax"
    encoded = encode_split(task, dataset_of(benchmark, name, split), tokenizer, 200, with_labels)
    examples = [task.input_format.examples(row) for row in rows]
    expected = [dict(tokenizer(*example.texts)) for of_row in examples for example in of_row]
    counts, labels = [1] * len(rows), [row.get("label") for row in rows]
    if name == "copa":
        expected = [{key: [one[key], two[key]] for key in one} for one, two in zip(*[iter(expected)] * 2, strict=True)]
    if name == "record":
        counts = [len(row["entities"]) for row in rows]
        labels = [int(entity in row["answers"]) for row in rows for entity in row["entities"]]
    if with_labels:
        expected = [{**one, "labels": pytest.approx(label)} for one, label in zip(expected, labels, strict=True)]
    assert encoded.counts == counts
    assert encoded.dataset.to_list() == expected


@pytest.mark.parametrize("name", ["stsb", "copa", "record", "wsc"])
def test_a_test_split_has_no_labels(name, tokenizer):
    benchmark = "glue" if name == "stsb" else "super_glue"
    task, rows = find_task(benchmark, name), dataset_of(benchmark, name, "test")
    encoded = encode_split(task, rows, tokenizer, 64, with_labels=False)
    assert set(encoded.dataset.column_names) == set(tokenizer.model_input_names)
    assert len(encoded.counts) == len(rows)
    with pytest.raises(ValueError, match=rf"Row 0 of {name} has no label .*test splits have none.*with_labels=False"):
        encode_split(task, rows, tokenizer, 64)


@pytest.mark.parametrize(("task", "hidden"), [(RTE, -1), (find_task("glue", "stsb"), -1.0)])
def test_a_hidden_label_in_a_labelled_split_is_an_error(task, hidden, tokenizer):
    rows = rows_of("glue", task.name)
    mixed = Dataset.from_list([*rows, {**rows[0], "label": hidden}])
    with pytest.raises(ValueError, match=rf"Row {len(rows)} of {task.name} has no label \({hidden}\).*remove the row"):
        encode_split(task, mixed, tokenizer, 64)


def test_an_empty_split_and_a_wrong_length_are_errors(tokenizer):
    with pytest.raises(ValueError, match="There is no row of rte to tokenise"):
        encode_split(RTE, dataset_of("glue", "rte").select([]), tokenizer, 64)
    with pytest.raises(ValueError, match="max_length=1024: this tokenizer's model takes from 5 to 512 tokens"):
        encode_split(RTE, dataset_of("glue", "rte"), tokenizer, 1024)
    with pytest.raises(ValueError, match=r"max_length=12 would cut off what the task is about: '\* The trophy \*'"):
        encode_split(find_task("super_glue", "wsc"), dataset_of("super_glue", "wsc"), tokenizer, 12)


def test_labels_of_a_regression_are_numbers_even_if_they_were_written_as_integers(tokenizer):
    whole = Dataset.from_list([{**row, "label": i} for i, row in enumerate(rows_of("glue", "stsb")[:3])])
    encoded = encode_split(find_task("glue", "stsb"), whole, tokenizer, 64).dataset
    batch = DataCollatorWithPadding(tokenizer)([encoded[i] for i in range(3)])
    assert batch["labels"].dtype == torch.float32
    assert batch["labels"].tolist() == [0.0, 1.0, 2.0]


def test_collators_take_the_rows(tokenizer):
    encoded = encode_split(find_task("super_glue", "copa"), dataset_of("super_glue", "copa"), tokenizer, 64).dataset
    batch = DataCollatorForMultipleChoice(tokenizer)([encoded[0], encoded[1]])
    assert batch["input_ids"].shape[:2] == (2, 2)
    assert batch["labels"].tolist() == [0, 1]
    assert "opened my umbrella" in tokenizer.decode(batch["input_ids"][1, 1])
    encoded = encode_split(RTE, dataset_of("glue", "rte"), tokenizer, 64).dataset
    batch = DataCollatorWithPadding(tokenizer)([encoded[i] for i in range(3)])
    assert batch["input_ids"].shape[0] == 3
    assert batch["labels"].tolist() == [0, 1, 0]


def test_logits_of_the_right_candidates_give_the_right_answers(tokenizer):
    task, rows = find_task("super_glue", "record"), rows_of("super_glue", "record")
    encoded = encode_split(task, dataset_of("super_glue", "record"), tokenizer, 64)
    logits = torch.nn.functional.one_hot(torch.tensor(encoded.dataset["labels"][:]), 2).numpy()
    assert answers_of(task.input_format, rows, encoded.counts, logits) == [
        "Maria Lopez",
        "Paris",
        "Karl Huber",
        "Danube",
    ]


def test_counts_go_on_over_batches(tokenizer):
    entities = [["A", "B", "C"][: 1 + i % 3] for i in range(2500)]
    rows = Dataset.from_list(
        [{**rows_of("super_glue", "record")[0], "entities": names, "answers": ["A"]} for names in entities]
    )
    encoded = encode_split(find_task("super_glue", "record"), rows, tokenizer, 64)
    assert encoded.counts == list(map(len, entities))
    assert len(encoded.dataset) == sum(encoded.counts)
    assert sum(encoded.dataset["labels"]) == 2500


@pytest.mark.parametrize("name", ["cb", "copa", "wsc", "wsc.fixed", "record", "boolq"])
def test_real_rows_fit(glue, name, tokenizer):
    task = find_task("super_glue", name)
    rows = real_rows(glue, "super_glue", name)
    rows = rows.select(range(min(len(rows), 200)))
    encoded = encode_split(task, rows, tokenizer, task.settings.get("max_length", 128))
    assert len(encoded.counts) == len(rows)
    assert sum(encoded.counts) == len(encoded.dataset)
    if name not in ("record", "copa"):
        assert encoded.dataset["labels"][:] == rows["label"][:]


def encode_record(folder, tokenizer):
    """Encodes rows of ReCoRD; gives what identifies the tokens, the files that hold them, and the tokens."""
    task = find_task("super_glue", "record")
    encoded = encode_split(task, read_task(task, folder).train, tokenizer, 48).dataset
    return [encoded._fingerprint, encoded.cache_files, encoded.to_list()]


IN_ANOTHER_PROCESS = """
import json, sys
from transformers import AutoTokenizer
from tests.tasks.test_encoding import encode_record
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
tokenizer("some text", padding="max_length", truncation=True, max_length=7)
print(json.dumps(encode_record(sys.argv[2], tokenizer)))
"""


def test_another_process_finds_the_tokens_on_disk(minilm, tmp_path):
    write_task(tmp_path, "super_glue", "record")
    here = encode_record(tmp_path, wordpiece(minilm))
    (file,) = [Path(file["filename"]) for file in here[1]]
    written = file.stat().st_mtime_ns
    result = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, minilm, tmp_path],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {"HF_DATASETS_CACHE": str(datasets.config.HF_DATASETS_CACHE)},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert json.loads(result.stdout.splitlines()[-1]) == here
    assert file.stat().st_mtime_ns == written


def test_whatever_changes_the_tokens_or_the_labels_has_a_cache_of_its_own(tokenizer, tmp_path, minilm):
    dataset_of("glue", "rte").to_parquet(tmp_path / "train.parquet")
    rows = datasets.load_dataset("parquet", data_files=str(tmp_path / "train.parquet"), split="train")
    swapped = replace(RTE, input_format=Texts(("sentence2", "sentence1")))
    more = wordpiece(minilm)
    more.add_tokens(["opened an"])
    encoded = [
        encode_split(RTE, rows, tokenizer, 48),
        encode_split(RTE, rows, tokenizer, 47),
        encode_split(RTE, rows, byte_level_bpe(), 48),
        encode_split(RTE, rows, more, 48),
        encode_split(swapped, rows, tokenizer, 48),
        encode_split(RTE, rows, tokenizer, 48, with_labels=False),
        encode_split(RTE, rows.select([1, 0, 2, 3]), tokenizer, 48),
    ]
    files = {file["filename"] for one in encoded for file in one.dataset.cache_files}
    assert len(files) == len(encoded)
    again = encode_split(RTE, rows, tokenizer, 48).dataset
    assert again.cache_files == encoded[0].dataset.cache_files
    assert again.to_list() == encoded[0].dataset.to_list()
    assert encoded[4].dataset.to_list() != encoded[0].dataset.to_list()
