"""Each row is scored in one fold, and what belongs together is in one."""

import pytest
from datasets import Dataset

from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.cross_validation import fold
from hf_elastic.tasks.task_data import TaskData

from .benchmark_rows import rows_of


def data_of(benchmark, name, rows):
    return TaskData(find_task(benchmark, name), {"train": Dataset.from_list(rows), "test": Dataset.from_list(rows)})


def test_every_row_is_scored_once_with_the_labels_in_proportion():
    rows = [{"sentence": str(i), "label": int(i % 3 == 0), "idx": i} for i in range(30)]
    data = data_of("glue", "cola", rows)
    scored = []
    for number in range(5):
        part = fold(data, number, 5)
        assert set(part.splits) == {"train", "validation"}
        assert sorted(part.train["idx"][:] + part.splits["validation"]["idx"][:]) == list(range(30))
        assert sum(part.splits["validation"]["label"]) == 2
        scored += part.splits["validation"]["idx"][:]
    assert sorted(scored) == list(range(30))
    assert scored != list(range(30))


def test_a_passage_is_in_one_fold():
    rows = [{**row, "paragraph": f"p{i % 6}"} for i, row in enumerate(rows_of("super_glue", "multirc") * 6)]
    data = data_of("super_glue", "multirc", rows)
    for number in range(3):
        part = fold(data, number, 3)
        assert not set(part.train["paragraph"]) & set(part.splits["validation"]["paragraph"])


@pytest.mark.parametrize(("number", "folds"), [(0, 1), (3, 3), (-1, 3)])
def test_there_are_no_other_folds(number, folds):
    data = data_of("glue", "cola", [{"sentence": "a", "label": 0, "idx": 0}] * 9)
    with pytest.raises(ValueError, match=f"Fold {number} of {folds}"):
        fold(data, number, folds)


def test_more_folds_than_rows_are_an_error():
    data = data_of("glue", "cola", [{"sentence": "a", "label": 0, "idx": 0}] * 2)
    with pytest.raises(ValueError, match="3 folds of cola need at least as many rows: there are 2"):
        fold(data, 0, 3)
