"""The hand-written rows have the columns, types and label names of real ones, and the table of tasks reads them."""

import datasets
import pytest

from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task

from .benchmark_rows import LABEL_NAMES, dataset_of, real_rows, rows_of, splits_of, write_task

TASKS = list(LABEL_NAMES)


def test_they_are_of_every_task():
    assert [(benchmark, name) for benchmark, tasks in BENCHMARKS.items() for name in tasks] == TASKS


@pytest.mark.parametrize(("benchmark", "name"), TASKS)
def test_the_table_of_tasks_reads_them(benchmark, name):
    task = find_task(benchmark, name)
    assert task.label_names == (LABEL_NAMES[benchmark, name] or (("False", "True") if name == "record" else ()))
    assert task.splits == splits_of(benchmark, name)
    for split in task.splits:
        for row in dataset_of(benchmark, name, split):
            assert set(task.input_format.columns) <= set(row)
            assert all(all(text.strip() for text in example.texts) for example in task.input_format.examples(row))


@pytest.mark.parametrize(("benchmark", "name"), TASKS)
def test_each_has_4_to_6_rows_with_every_label(benchmark, name):
    for split in splits_of(benchmark, name):
        assert 4 <= len(rows_of(benchmark, name, split)) <= 6
    rows = rows_of(benchmark, name, splits_of(benchmark, name)[0])
    if name not in ("stsb", "record", "ax"):
        assert {row["label"] for row in rows} == set(range(len(LABEL_NAMES[benchmark, name])))


def test_hidden_labels():
    assert {row["label"] for row in rows_of("glue", "ax", "test")} == {-1}
    assert {row["label"] for row in rows_of("glue", "stsb", "test")} == {-1.0}
    assert all(row["answers"] == [] for row in rows_of("super_glue", "record", "test"))
    assert {row["label"] for row in rows_of("super_glue", "axb", "test")} == {0, 1}


@pytest.mark.parametrize(("benchmark", "name"), TASKS)
def test_real_rows_have_the_same_schema(glue, benchmark, name):
    real = real_rows(glue, benchmark, name)
    ours = dataset_of(benchmark, name).features
    assert set(ours) == set(real.features)
    for column, feature in ours.items():
        assert _shape(feature) == _shape(real.features[column])


def test_parquet_files_give_the_rows_back(tmp_path):
    folder = write_task(tmp_path, "super_glue", "record")
    assert folder == tmp_path / "super_glue" / "record"
    read = datasets.load_dataset("parquet", data_files={"test": str(folder / "test.parquet")})["test"]
    assert list(read) == rows_of("super_glue", "record", "test")


def _shape(feature):
    """A feature without what a file of parquet may write otherwise: the kind of list, the length of an integer."""
    if isinstance(feature, dict):
        return {name: _shape(part) for name, part in feature.items()}
    if isinstance(feature, datasets.ClassLabel):
        return tuple(feature.names)
    return _shape(feature.feature) if isinstance(feature, datasets.List) else feature.dtype
