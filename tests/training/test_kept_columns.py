"""What teachers read reaches them from every kind of dataset, and what nobody reads reaches nobody."""

import pickle

import datasets
import pytest
import torch

from hf_elastic.training.kept_columns import KeptColumns
from hf_elastic.training.teachers import Teacher
from tests.training.cases import collate, losses_of, make_rows, make_trainer
from tests.training.teacher_cases import make_numbered_rows, make_teacher

NUMBER = 16
CACHED = {"hidden_weight": 0.0, "max_steps": 2}


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        yield from self.rows


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def as_unnamed_stream(rows: list[dict]) -> datasets.IterableDataset:
    stream = datasets.IterableDataset.from_generator(lambda: iter(rows))
    assert stream.column_names is None
    return stream


KINDS = {
    "list": list,
    "dataset": datasets.Dataset.from_list,
    "stream of datasets": as_unnamed_stream,
    "stream": Stream,
    "rows": Rows,
}


def with_own_inputs(rows: list[dict]) -> list[dict]:
    return [{**row, "own_input_ids": row["input_ids"][::-1], "title": "text"} for row in rows]


@pytest.mark.parametrize("evaluation", ["list", "dataset"])
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_of_a_teacher_from_any_data(tmp_path, kind, evaluation):
    """The evaluation data weigh the teacher, and may tell their columns where the training data do not."""
    trainer = make_trainer(
        tmp_path,
        teachers=[Teacher(make_teacher(), inputs="own_")],
        train_dataset=KINDS[kind](with_own_inputs(make_rows("classification", NUMBER))),
        eval_dataset=KINDS[evaluation](with_own_inputs(make_rows("classification", 8, seed=1))),
        data_collator=collate_with_own,
        settings={"max_steps": 1, "teacher_mixing": "validation"},
    )
    trainer.train()
    assert losses_of(trainer)[0]["distillation_loss_large"] > 0


def collate_with_own(rows: list[dict]) -> dict[str, torch.Tensor]:
    """Also of evaluations, where a teacher's columns are there as well."""
    assert all("title" not in row for row in rows)
    own = collate([{"input_ids": row["own_input_ids"]} for row in rows])
    batch = collate([{name: row[name] for name in ("input_ids", "labels")} for row in rows])
    return batch | {f"own_{name}": value for name, value in own.items()}


@pytest.mark.parametrize("kind", ["list", "dataset"])
def test_ids_of_examples_for_a_cache(tmp_path, kind):
    settings = {**CACHED, "teacher_cache_dir": str(tmp_path / "cache")}
    data = KINDS[kind](make_numbered_rows(NUMBER))
    trainer = make_trainer(tmp_path / "out", settings=settings, teachers=[make_teacher()], train_dataset=data)
    trainer.train()
    assert losses_of(trainer)[0]["distillation_loss_large"] > 0


@pytest.mark.parametrize("teachers", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_examples_that_nobody_asks_for(tmp_path, kind, teachers):
    """They are text here, as in many datasets, of which no batch can be made."""
    rows = [{**row, "example_id": f"q{i}"} for i, row in enumerate(make_rows("classification", NUMBER))]
    data = {"train_dataset": KINDS[kind](rows), "teachers": [make_teacher() for _ in range(teachers)]}
    trainer = make_trainer(tmp_path, settings={"max_steps": 1}, **data)
    trainer.train()
    assert "eval_tiny_loss" in trainer.evaluate(datasets.Dataset.from_list(rows))


def test_names_are_told_by_what_they_begin_with():
    teachers = [Teacher(make_teacher(), inputs="own_"), Teacher(make_teacher())]
    kept = KeptColumns(["input_ids", "labels"], teachers, has_cache=True)
    assert "own_input_ids" in kept and "input_ids" in kept and "example_id" in kept
    assert "title" not in kept and "my_own_input_ids" not in kept and "own" not in kept
    for _ in range(2):
        kept.add_from(["own_input_ids", "input_ids", "title"])
    assert list(kept) == ["input_ids", "labels", "example_id", "own_input_ids"]
    copy = pickle.loads(pickle.dumps(kept))  # as workers that load data get it
    assert "own_attention_mask" in copy and list(copy) == list(kept)
    assert "example_id" not in KeptColumns([], [], has_cache=True)
