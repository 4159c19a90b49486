"""Rows are read from wherever they are, and what is wrong with them is said with split, row and value."""

import pytest
from datasets import ClassLabel, Dataset

from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task
from hf_elastic.tasks.task_data import HIDDEN, read_task, row_groups, split_rows

from .benchmark_rows import dataset_of, rows_of, splits_of, write_task

EVERY_TASK = [(benchmark, name) for benchmark, tasks in BENCHMARKS.items() for name in tasks]
RTE = find_task("glue", "rte")


@pytest.mark.parametrize(("benchmark", "name"), EVERY_TASK)
def test_every_task_is_read_from_a_folder(tmp_path, benchmark, name):
    task = find_task(benchmark, name)
    write_task(tmp_path, benchmark, name)
    data = read_task(task, tmp_path)
    assert tuple(data.splits) == splits_of(benchmark, name)
    for split, rows in data.splits.items():
        expected = rows_of(benchmark, name, split)
        labels = [row.get(task.label_column, HIDDEN) for row in expected]
        assert list(rows[task.label_column]) == (pytest.approx(labels) if task.label_range else labels)
        assert rows["idx"][:] == [row["idx"] for row in expected]
    assert set(data.scored_splits) == {split for split in data.splits if data.has_labels(split)} - {task.train_split}


def test_one_folder_files_and_loaded_rows_give_the_same(tmp_path):
    write_task(tmp_path, "glue", "rte")
    folder = tmp_path / "glue" / "rte"
    sources = [tmp_path, folder, {split: folder / f"{split}.parquet" for split in RTE.splits}]
    sources.append({split: dataset_of("glue", "rte", split) for split in RTE.splits})
    first, *others = ({split: rows.to_list() for split, rows in read_task(RTE, s).splits.items()} for s in sources)
    assert all(other == first for other in others)


def rte(**columns):
    rows = {"sentence1": ["a b", "c d", "e f"], "sentence2": ["a", "d", "g"], "label": [0, 1, 0], "idx": [5, 6, 7]}
    return Dataset.from_dict({name: values for name, values in {**rows, **columns}.items() if values is not None})


def read(**columns):
    return read_task(RTE, {"train": rte(), "validation": rte(**columns)})


def test_labels_are_taken_by_their_names():
    names = ClassLabel(names=["not_entailment", "entailment"])
    splits = {
        "train": rte().cast_column("label", names),
        "validation": rte(label=["not_entailment", *["entailment"] * 2]),
    }
    data = read_task(RTE, splits)
    assert list(data.train["label"]) == [1, 0, 1]  # the data number them the other way round
    assert list(data.splits["validation"]["label"]) == [1, 0, 0]


@pytest.mark.parametrize(("benchmark", "name"), [("glue", "rte"), ("glue", "stsb"), ("super_glue", "record")])
def test_rows_in_another_format_are_read_as_plain_ones(benchmark, name):
    task = find_task(benchmark, name)
    plain = {split: dataset_of(benchmark, name, split) for split in task.splits}
    tensors = {split: rows.with_format("torch") for split, rows in plain.items()}
    data = read_task(task, tensors)
    assert {split: rows.to_list() for split, rows in data.splits.items()} == {
        split: rows.to_list() for split, rows in read_task(task, plain).splits.items()
    }
    assert all(rows.format["type"] is None for rows in data.splits.values())
    assert data.scored_splits == ("validation",)


def test_rows_without_idx_are_numbered():
    assert list(read(idx=None).splits["validation"]["idx"]) == [0, 1, 2]


@pytest.mark.parametrize("label", [None, [-1, -1, -1]])
def test_hidden_labels_of_a_test_split_are_no_error(label):
    data = read_task(RTE, {"train": rte(), "validation": rte(), "test": rte(label=label)})
    assert list(data.splits["test"]["label"]) == [HIDDEN] * 3
    assert data.scored_splits == ("validation",)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sentence2": None}, "rte validation data has no column 'sentence2'.*sentence1, label"),
        ({"label": None}, "rte validation data has no column 'label'"),
        ({"sentence1": ["a", None, "b"]}, "'sentence1' of the rte validation data is null in 1 of 3 rows.*row 1"),
        ({"sentence1": [1, 2, 3]}, "'sentence1' of the rte validation data holds int64, not text"),
        ({"idx": [5, None, 7]}, "'idx' of the rte validation data is null in 1 of 3 rows, the first is row 1"),
        ({"label": [0, 1, 2]}, "Label '2' in row 2 of the rte validation data is none of the 2 labels 'entailment'"),
        ({"label": [0, -1, 1]}, "Label '-1' in row 1 of the rte validation data"),
        ({"sentence1": [], "sentence2": [], "label": [], "idx": []}, "rte validation data is empty"),
    ],
)
def test_what_is_wrong_with_rows_is_named(columns, message):
    with pytest.raises(ValueError, match=message):
        read(**columns)


def test_a_number_out_of_the_range_of_a_regression_is_named():
    rows = Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"], "label": [5.5]})
    with pytest.raises(ValueError, match="Label 5.5 in row 0 of the stsb train data is not between 0.0 and 5.0"):
        read_task(find_task("glue", "stsb"), {"train": rows})


def test_a_source_without_the_task_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no rows of rte in .*glue/rte.*train.parquet"):
        read_task(RTE, tmp_path)
    with pytest.raises(FileNotFoundError, match="There is no folder './nowhere'"):
        read_task(RTE, "./nowhere")
    (tmp_path / "train.csv").write_text("a,b\n")
    with pytest.raises(NotADirectoryError, match="is a file: give the folder"):
        read_task(RTE, tmp_path / "train.csv")
    with pytest.raises(ValueError, match="no split 'train' of rte: found 'validation'"):
        read_task(RTE, {"validation": rte()})


def test_rows_are_held_out_where_no_split_is_scored():
    data = read_task(RTE, {"train": rte()}, validation_fraction=0.34)
    assert sorted(data.train["idx"][:] + data.splits["validation"]["idx"][:]) == [5, 6, 7]
    assert data.scored_splits == ("validation",)


def test_none_are_held_out_where_none_are_wanted():
    data = read_task(RTE, {"train": rte()}, validation_fraction=0.0)
    assert list(data.splits) == ["train"] and len(data.train) == 3 and not data.scored_splits


@pytest.mark.parametrize(
    ("name", "idx", "missing"),
    [
        ("multirc", [0, 1], "paragraph, question, answer"),
        ("multirc", [{"paragraph": 0, "question": 0}, {"paragraph": 0, "question": 1}], "paragraph, question, answer"),
        ("record", [0, 1], "passage, query"),
    ],
)
def test_an_idx_that_lacks_what_ties_rows_together_is_named(name, idx, missing):
    rows = [{**row, "idx": of_row} for row, of_row in zip(rows_of("super_glue", name), idx, strict=False)]
    with pytest.raises(ValueError, match=rf"idx=.* of the {name} train data does not have {missing}, which tell"):
        read_task(find_task("super_glue", name), {"train": Dataset.from_list(rows)})


def record(*answers, split="train"):
    rows = [{**row, "answers": of_row} for row, of_row in zip(rows_of("super_glue", "record"), answers, strict=False)]
    splits = {"train": dataset_of("super_glue", "record"), "validation": dataset_of("super_glue", "record")}
    return read_task(find_task("super_glue", "record"), {**splits, split: Dataset.from_list(rows)})


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (["Paris", "Paris"], "answers='Paris' in row 0 of the record {split} data is no list of texts"),
        ([[1], [2]], r"answers=\[1\] in row 0 of the record {split} data is no list of texts"),
        ([["Paris"], []], "Row 1 of the record {split} data has no answers: leave it out"),
        ([["Paris"], None], "'answers' of the record {split} data is null in 1 of 2 rows"),
    ],
)
def test_answers_are_lists_of_texts(split, answers, message):
    with pytest.raises(ValueError, match=message.format(split=split)):
        record(*answers, split=split)


def test_all_answers_of_a_test_split_may_be_hidden():
    data = record([], [], split="test")
    assert data.splits["test"]["answers"][:] == [[], []] and data.scored_splits == ("validation",)
    assert record(["Paris"], ["Lopez"], split="test").scored_splits == ("validation", "test")
    with pytest.raises(ValueError, match="Row 0 of the record validation data has no answers"):
        record([], [], split="validation")


def test_questions_about_one_paragraph_stay_together():
    task = find_task("super_glue", "multirc")
    rows = [{**row, "paragraph": f"p{i % 5}"} for i, row in enumerate(rows_of("super_glue", "multirc") * 10)]
    data = Dataset.from_list(rows)
    kept, held_out = split_rows(task, data, 0.3, seed=1)
    groups = row_groups(task, data)
    assert sorted(kept + held_out) == list(range(len(rows))) and len(held_out) >= 0.3 * len(rows)
    assert not {groups[i] for i in kept} & {groups[i] for i in held_out}


def test_a_part_of_the_training_rows_keeps_the_labels_in_proportion(glue):
    data = read_task(find_task("glue", "mrpc"), glue.parent).limit(300)
    assert len(data.train) == 300 and sum(data.train["label"]) == pytest.approx(300 * 0.6745, abs=1)
    with pytest.raises(ValueError, match="train_rows=0"):
        data.limit(0)
