"""Every kind of source gives the same rows; what is not there is an error that says what is."""

import json
import subprocess
import sys

import pytest
from datasets import Dataset, DatasetDict

from hf_elastic.tasks.sources import load_splits

ROWS = {"text": ["good film", "bad film", "fine"], "label": ["pos", "neg", "pos"]}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl", ".parquet"])
def test_a_file_of_any_format_gives_its_rows(tmp_path, suffix):
    path = tmp_path / f"reviews{suffix}"
    rows = Dataset.from_dict(ROWS)
    if suffix == ".json":
        path.write_text(json.dumps([dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)]))
    else:
        writer = {".csv": rows.to_csv, ".jsonl": rows.to_json, ".parquet": rows.to_parquet}
        if suffix == ".tsv":
            rows.to_csv(path, sep="\t")
        else:
            writer[suffix](path)
    splits = load_splits(path)
    assert list(splits) == ["train"]
    assert splits["train"].to_dict() == ROWS


def test_a_folder_gives_splits_by_file_name_whatever_the_formats(tmp_path):
    rows = Dataset.from_dict(ROWS)
    rows.select([0]).to_csv(tmp_path / "train-00000-of-00002.csv")
    rows.select([1]).to_csv(tmp_path / "train-00001-of-00002.csv")
    rows.select([2]).to_parquet(tmp_path / "dev.parquet")
    rows.to_json(tmp_path / "test.jsonl")
    splits = load_splits(tmp_path)
    assert {name: split["text"][:] for name, split in splits.items()} == {
        "train": ["good film", "bad film"],
        "validation": ["fine"],
        "test": ROWS["text"],
    }


@pytest.mark.parametrize("name", ["reviews[1]", "[a-z]*", "what?", "two**", "{a,b}", "a[b"])
def test_names_with_signs_of_patterns_are_names(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    for file in ("train", name):
        Dataset.from_dict(ROWS).to_csv(folder / f"{file}.csv")
    (tmp_path / "what1").mkdir()
    Dataset.from_dict(ROWS).select([0]).to_csv(tmp_path / "what1" / "train.csv")  # what `what?` would match
    splits = load_splits(folder)
    assert splits["train"].to_dict() == ROWS
    assert load_splits(folder / f"{name}.csv")["train"].to_dict() == ROWS


def test_matched_and_mismatched_validation_files_stay_apart(glue):
    splits = load_splits(glue / "mnli")
    assert len(splits["validation"]) == 9815
    assert len(load_splits(glue / "mnli", validation="validation_mismatched")["validation"]) == 1000


def test_a_folder_in_the_layout_of_the_hub_is_read_by_datasets_itself(tmp_path):
    (tmp_path / "data").mkdir()
    Dataset.from_dict(ROWS).to_parquet(tmp_path / "data" / "train-00000-of-00001.parquet")
    assert load_splits(tmp_path)["train"].to_dict() == ROWS


def test_saved_and_loaded_data_sets_are_sources(tmp_path):
    rows = DatasetDict(train=Dataset.from_dict(ROWS), validation=Dataset.from_dict(ROWS))
    rows.save_to_disk(tmp_path / "saved")
    assert list(load_splits(tmp_path / "saved")) == ["train", "validation"]
    assert list(load_splits(rows)) == ["train", "validation"]
    assert list(load_splits(rows["train"])) == ["train"]


def test_a_split_or_a_file_can_be_named_for_each_part(tmp_path):
    rows = Dataset.from_dict(ROWS)
    rows.to_csv(tmp_path / "held-out.csv")
    source = DatasetDict(first=rows, second=rows.select([0]))
    splits = load_splits(source, train="first", validation="second", test=tmp_path / "held-out.csv")
    assert {name: len(split) for name, split in splits.items()} == {"train": 3, "validation": 1, "test": 3}


def test_only_empty_cells_of_a_csv_are_null(csv_file):
    rows = load_splits(csv_file("text,label", "NA,None", "null,NA", ",pos"))["train"]
    assert rows["text"][:] == ["NA", "null", None]
    assert rows["label"][:] == ["None", "NA", "pos"]


def test_a_split_that_is_not_there_is_an_error_that_lists_the_splits():
    rows = Dataset.from_dict(ROWS)
    with pytest.raises(ValueError, match="'dev' for the validation data; the splits there are: train, extra"):
        load_splits(DatasetDict(train=rows, extra=rows), validation="dev")
    with pytest.raises(ValueError, match="'train' for the train data; the splits there are: first, second"):
        load_splits(DatasetDict(first=rows, second=rows))


def test_missing_unreadable_and_empty_files_are_errors_that_name_the_path(tmp_path, csv_file):
    with pytest.raises(FileNotFoundError, match="no file or folder 'missing.csv'"):
        load_splits("missing.csv")
    (tmp_path / "notes.docx").write_text("x")
    with pytest.raises(ValueError, match=r"notes\.docx': the formats are \.csv, \.tsv, \.json"):
        load_splits(tmp_path / "notes.docx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty' holds none of the files that can be read"):
        load_splits(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"only-a-header\.csv' as csv, is it empty\?"):
        load_splits(csv_file("text,label", name="only-a-header.csv"))
    (tmp_path / "nothing.csv").write_text("")
    with pytest.raises(ValueError, match=r"nothing\.csv' as csv, is it empty\?"):
        load_splits(tmp_path / "nothing.csv")


def test_without_datasets_the_error_has_the_command_that_installs_it():
    code = (
        "import sys; sys.modules['datasets'] = None; from hf_elastic.tasks.sources import load_splits; "
        "load_splits('x.csv')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert 'ImportError: Reading labelled data needs `datasets`: pip install "hf_elastic[data]"' in result.stderr
