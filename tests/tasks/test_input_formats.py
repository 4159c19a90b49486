"""Rows become the examples that the task means, and logits the answers."""

import numpy as np
import pytest

from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task
from hf_elastic.tasks.input_formats import Answers, Choices, Entities, Texts, answers_of

from .benchmark_rows import real_rows, rows_of, splits_of

EVERY_TASK = [(benchmark, name) for benchmark, tasks in BENCHMARKS.items() for name in tasks]


@pytest.mark.parametrize(("benchmark", "name"), EVERY_TASK)
def test_every_row_gives_examples_with_the_labels_of_the_task(benchmark, name):
    task = find_task(benchmark, name)
    for split in splits_of(benchmark, name):
        for row in rows_of(benchmark, name, split):
            examples = task.input_format.examples(row)
            assert all(1 <= len(example.texts) <= 2 and all(example.texts) for example in examples)
            if task.label_names and not split.startswith("test"):
                assert all(example.label in range(len(task.label_names)) for example in examples)


def test_a_pair_is_read_in_the_order_of_its_columns():
    (example,) = Texts(("question", "passage")).examples({"question": "Is it?", "passage": "It is.", "label": 1})
    assert example.texts == ("Is it?", "It is.") and example.label == 1


def test_an_answer_stands_behind_its_question():
    row = {"paragraph": "Cats sleep.", "question": "Who sleeps?", "answer": "Cats", "label": 1}
    assert Answers().examples(row)[0].texts == ("Cats sleep.", "Who sleeps? Cats")


def test_choices_are_two_examples_with_the_label_of_the_row():
    row = {"premise": "It rained.", "choice1": "It is wet.", "choice2": "It is dry.", "question": "effect", "label": 0}
    first, second = Choices().examples(row)
    assert first.texts == ("It rained. What happened as a result?", "It is wet.")
    assert second.texts == ("It rained. What happened as a result?", "It is dry.")
    assert first.label == second.label == 0
    with pytest.raises(ValueError, match="question='why' is none of 'cause', 'effect'"):
        Choices().examples({**row, "question": "why"})


def test_each_different_entity_fills_the_gap_once():
    row = {
        "passage": "Ann met Bob.\n@highlight\nAnn left",
        "query": "@placeholder left Bob",
        "entities": ["Ann", "Bob", "Ann"],
        "answers": ["Ann"],
        "idx": {"passage": 0, "query": 0},
    }
    examples = Entities().examples(row)
    assert [example.texts for example in examples] == [
        ("Ann met Bob. Ann left", "Ann left Bob"),
        ("Ann met Bob. Ann left", "Bob left Bob"),
    ]
    assert [example.label for example in examples] == [1, 0]
    assert [example.label for example in Entities().examples({**row, "answers": []})] == [None, None]
    assert Entities().answer(row, np.array([[0.0, 1.0], [-3.0, -1.5]])) == "Bob"
    with pytest.raises(ValueError, match="no entities"):
        Entities().examples({**row, "entities": []})


def test_answers_are_those_of_each_row_whatever_it_has_of_examples():
    rows = rows_of("super_glue", "record")
    counts = [len(Entities().examples(row)) for row in rows]
    logits = np.zeros((sum(counts), 2))
    last = np.cumsum(counts) - 1
    logits[last, 1] = 1.0
    assert answers_of(Entities(), rows, counts, logits) == [Entities().candidates(row)[-1] for row in rows]
    with pytest.raises(ValueError, match="predict the whole split"):
        answers_of(Entities(), rows, counts, logits[1:])


@pytest.mark.parametrize(("benchmark", "name"), EVERY_TASK)
def test_the_parts_of_idx_are_those_of_the_benchmark(benchmark, name):
    parts = find_task(benchmark, name).input_format.idx_parts
    for row in rows_of(benchmark, name, splits_of(benchmark, name)[0]):
        assert set(row["idx"]) == set(parts) if parts else isinstance(row["idx"], int)


def test_a_regression_answers_with_its_number():
    assert answers_of(Texts(("sentence1", "sentence2")), [{}, {}], [1, 1], np.array([[2.5], [0.5]])) == [2.5, 0.5]


@pytest.mark.parametrize(("benchmark", "name"), EVERY_TASK)
def test_real_rows_are_read(glue, benchmark, name):
    task = find_task(benchmark, name)
    for split in task.splits[:2]:
        rows = real_rows(glue, benchmark, name, split)
        for row in rows.select(range(min(len(rows), 500))):
            assert task.input_format.examples(row)
