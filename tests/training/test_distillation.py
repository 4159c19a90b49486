"""Which objective and which units belong to which head."""

import copy

import pytest
import torch
from transformers.utils import ModelOutput

from hf_elastic.training.distillation import Reference, UnitCounts, hidden_loss, soft_loss, teach, token_mask
from hf_elastic.training.feature_objectives import hidden_state_mse
from hf_elastic.training.objectives import binary_kl, kl_divergence, logit_mse
from tests.training.cases import CASES, collate, make_model, make_rows

LOGITS = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.2, -1.0]])
TEACHER = torch.tensor([[0.5, 0.1, -1.0], [2.0, 0.0, 1.0]])
BATCH = {
    "input_ids": torch.ones(2, 3, dtype=torch.long),
    "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    "labels": torch.tensor([0, 1]),
}


def soft(logits=LOGITS, teacher=TEACHER, batch=BATCH, **keywords) -> torch.Tensor:
    outputs = ModelOutput(logits=logits)
    reference = Reference.of(ModelOutput(logits=teacher))
    return soft_loss(outputs, reference, batch, UnitCounts.of(batch), **keywords)


@pytest.mark.parametrize("problem_type", ["single_label_classification", None])
def test_classes(problem_type):
    expected = kl_divergence(LOGITS, TEACHER, temperature=2.0)
    assert soft(temperature=2.0, problem_type=problem_type) == expected


def test_regression():
    assert soft(problem_type="regression") == logit_mse(LOGITS, TEACHER)
    assert soft(LOGITS[:, :1], TEACHER[:, :1]) == logit_mse(LOGITS[:, :1], TEACHER[:, :1])


def test_several_labels():
    expected = binary_kl(LOGITS, TEACHER, temperature=2.0)
    batch = {**BATCH, "labels": torch.ones(2, 3)}
    assert soft(temperature=2.0, problem_type="multi_label_classification") == expected
    assert soft(batch=batch, temperature=2.0) == expected


def test_labelled_tokens():
    logits, teacher = LOGITS.expand(2, 2, 3), TEACHER.expand(2, 2, 3).clone()
    batch = {**BATCH, "labels": torch.tensor([[-100, 2], [-100, -100]])}
    assert soft(logits, teacher, batch) == kl_divergence(LOGITS[1:], TEACHER[1:])


def test_spans_over_the_positions_that_exist():
    batch = {name: BATCH[name] for name in ("input_ids", "attention_mask")}
    outputs = ModelOutput(start_logits=LOGITS, end_logits=LOGITS.flip(0))
    reference = Reference.of(ModelOutput(start_logits=TEACHER, end_logits=TEACHER.flip(0)))
    loss = soft_loss(outputs, reference, batch, UnitCounts.of(batch), temperature=2.0)

    def without_padding(student, teacher):
        rows = [kl_divergence(student[:1], teacher[:1], 2.0), kl_divergence(student[1:, :2], teacher[1:, :2], 2.0)]
        return sum(rows) / 2

    expected = (without_padding(LOGITS, TEACHER) + without_padding(LOGITS.flip(0), TEACHER.flip(0))) / 2
    torch.testing.assert_close(loss, expected)


def test_hidden_states_of_choices_are_rows():
    mask = torch.tensor([[[1, 1], [1, 0]]])
    states, others = torch.randn(2, 2, 2, 2, 4)
    batch = {"input_ids": torch.ones(1, 2, 2), "attention_mask": mask}
    outputs = ModelOutput(logits=LOGITS, hidden_states=tuple(states))
    reference = Reference.of(ModelOutput(logits=TEACHER, hidden_states=tuple(others)))
    expected = hidden_state_mse(states[1], others[1], mask[0])
    torch.testing.assert_close(hidden_loss(outputs, reference, batch, UnitCounts.of(batch)), expected)


def test_hidden_states_are_divided_by_the_tokens_of_the_whole_batch():
    states, others = torch.randn(2, 2, 2, 3, 4)
    outputs = ModelOutput(logits=LOGITS, hidden_states=tuple(states))
    reference = Reference.of(ModelOutput(logits=TEACHER, hidden_states=tuple(others)))
    counts = UnitCounts(*map(torch.tensor, (1, 50, 1)))
    expected = hidden_state_mse(states[1], others[1], BATCH["attention_mask"]) * 5 / 50
    torch.testing.assert_close(hidden_loss(outputs, reference, BATCH, counts), expected)


@pytest.mark.parametrize(
    ("case", "labels"), [("classification", 2), ("multi_label", 8), ("question_answering", 2), ("multiple_choice", 2)]
)
def test_counts(case, labels):
    batch = collate(make_rows(case, 2))
    examples, tokens, counted = UnitCounts.of(batch)
    assert (examples, tokens, counted) == (2, batch["attention_mask"].sum(), labels)


def test_counts_of_tokens_leave_out_the_ignored():
    batch = collate(make_rows("masked_lm", 4))
    assert UnitCounts.of(batch).labels == sum(label != -100 for row in batch["labels"].tolist() for label in row)


def test_without_a_mask_all_tokens_count():
    assert token_mask({"input_ids": torch.zeros(2, 3, dtype=torch.long)}).sum() == 6
    assert token_mask({"inputs_embeds": torch.zeros(2, 3, 8)}).shape == (2, 3)
    assert UnitCounts.of({"inputs_embeds": torch.zeros(2, 3, 8)}).examples == 2


@pytest.mark.parametrize("case", CASES)
def test_a_teacher_gives_its_outputs_without_a_graph(case):
    teacher = make_model(case).eval()
    batch = collate(make_rows(case, 3))
    before = copy.deepcopy(batch)
    reference = teach(teacher, batch, output_hidden_states=True)
    outputs = teacher(**batch)
    expected = [outputs.start_logits, outputs.end_logits] if "start_logits" in outputs else [outputs.logits]
    for logits, wanted in zip(reference.logits, expected, strict=True):
        assert torch.equal(logits, wanted) and not logits.requires_grad
    assert len(reference.hidden_states) == 5 and not reference.hidden_states[0].requires_grad
    assert batch.keys() == before.keys()
    assert teach(teacher, batch, output_hidden_states=False).hidden_states is None
