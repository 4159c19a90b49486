import pytest
import torch

from hf_elastic.training.batch_splitting import split_batch
from tests.training.cases import collate, make_rows


def make_batch(lengths, width):
    ids = torch.arange(1, len(lengths) * width + 1).view(len(lengths), width)
    mask = (torch.arange(width) < torch.tensor(lengths).unsqueeze(1)).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


@pytest.mark.parametrize(
    ("rows", "size", "expected"),
    [(8, 3, [2, 3, 3]), (8, 4, [4, 4]), (7, 6, [3, 4]), (5, 1, [1] * 5), (8, 8, [8]), (3, 100, [3])],
)
def test_parts_are_as_even_as_they_can_be(rows, size, expected):
    batch = make_batch([4] * rows, width=4)
    parts = split_batch(batch, size)
    assert [len(part["input_ids"]) for part in parts] == expected
    assert torch.equal(torch.cat([part["input_ids"] for part in parts]), batch["input_ids"])


def test_padding_that_no_row_of_a_part_needs_is_cut_off():
    batch = make_batch([2, 3, 1, 5], width=6)
    batch |= {
        "token_type_ids": torch.ones(4, 6, dtype=torch.long),
        "inputs_embeds": torch.randn(4, 6, 7),
        "labels": torch.arange(24).view(4, 6),
    }
    first, second = split_batch(batch, 2)
    for name, value in batch.items():
        assert torch.equal(first[name], value[:2, :3])
        assert torch.equal(second[name], value[2:, :5])


def test_padding_before_the_tokens_stays():
    mask = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0]])
    batch = {"input_ids": mask * 7, "attention_mask": mask}
    first, second = split_batch(batch, 1)
    assert first["input_ids"].tolist() == [[0, 0, 7, 7]]
    assert second["input_ids"].tolist() == [[0, 7, 7]]


def test_choices_are_cut_together():
    mask = torch.tensor([[[1, 0, 0, 0], [1, 1, 1, 0]], [[1, 1, 0, 0], [1, 0, 0, 0]]])
    batch = {"input_ids": mask * 5, "attention_mask": mask, "labels": torch.tensor([1, 0])}
    first, second = split_batch(batch, 1)
    assert first["input_ids"].shape == (1, 2, 3)
    assert second["input_ids"].shape == (1, 2, 2)
    assert (first["labels"].tolist(), second["labels"].tolist()) == ([1], [0])


def test_spans_keep_their_length():
    batch = make_batch([2, 6], width=6)
    batch |= {"start_positions": torch.tensor([1, 3]), "end_positions": torch.tensor([1, 5])}
    first, second = split_batch(batch, 1)
    assert first["input_ids"].shape == (1, 6)
    assert (first["end_positions"].item(), second["end_positions"].item()) == (1, 5)


def test_inputs_of_a_teacher_are_cut_by_their_own_mask():
    batch = make_batch([2, 4], width=4)
    teacher = make_batch([5, 3], width=6)
    batch |= {f"teacher_{name}": value for name, value in teacher.items()}
    batch["teacher_token_type_ids"] = torch.zeros(2, 6, dtype=torch.long)
    first, second = split_batch(batch, 1)
    assert (first["input_ids"].shape[1], second["input_ids"].shape[1]) == (2, 4)
    for name in ("teacher_input_ids", "teacher_attention_mask", "teacher_token_type_ids"):
        assert (first[name].shape[1], second[name].shape[1]) == (5, 3)


def test_inputs_of_a_teacher_with_the_same_width_are_not_cut_by_the_other_mask():
    batch = make_batch([2, 2], width=4)
    batch |= {f"teacher_{name}": value for name, value in make_batch([4, 3], width=4).items()}
    first, second = split_batch(batch, 1)
    assert first["input_ids"].shape[1] == second["input_ids"].shape[1] == 2
    assert torch.equal(first["teacher_input_ids"], batch["teacher_input_ids"][:1])
    assert torch.equal(second["teacher_input_ids"], batch["teacher_input_ids"][1:, :3])


def test_labels_that_are_as_many_as_tokens_are_not_cut():
    batch = make_batch([2, 4], width=4) | {"labels": torch.rand(2, 4)}
    first, _ = split_batch(batch, 1)
    assert torch.equal(first["labels"], batch["labels"][:1])
    assert first["input_ids"].shape == (1, 4)


def test_what_is_not_per_row_is_passed_on():
    weights = torch.rand(3)
    batch = make_batch([4, 4], width=4)
    batch |= {
        "unpad_inputs": True,
        "subnet": "small",
        "weights": weights,
        "scale": torch.tensor(2.0),
        "ids": ["a", "b"],
    }
    first, second = split_batch(batch, 1)
    assert first["unpad_inputs"] is True and second["subnet"] == "small"
    assert first["weights"] is weights and second["scale"] == 2.0
    assert (first["ids"], second["ids"]) == (["a"], ["b"])


def test_without_a_mask_nothing_is_cut_off():
    first, _ = split_batch({"input_ids": torch.zeros(2, 5), "attention_mask": None}, 1)
    assert first["input_ids"].shape == (1, 5)


def test_a_part_of_nothing_but_padding_keeps_a_column():
    first, _ = split_batch(make_batch([0, 3], width=4), 1)
    assert first["input_ids"].shape == (1, 1)


def test_the_whole_batch_stays_as_it_is():
    batch = collate(make_rows("masked_lm", 4))
    padded = {name: torch.nn.functional.pad(value, (0, 3)) for name, value in batch.items()}
    (part,) = split_batch(padded, 4)
    assert all(part[name] is value for name, value in padded.items())


def test_impossible_sizes():
    with pytest.raises(ValueError, match="micro-batch of 0 rows"):
        split_batch(make_batch([1], 1), 0)
