"""Which objective and which units belong to which head."""

import pytest
import torch
from transformers.utils import ModelOutput

from hf_elastic.training.attention_states import AttentionStates
from hf_elastic.training.distillation import (
    Observation,
    UnitCounts,
    feature_mask,
    prediction_loss,
    token_mask,
)
from hf_elastic.training.objectives import binary_kl, kl_divergence, logit_mse, soft_cross_entropy
from tests.training.cases import CASES, collate, make_model, make_rows

LOGITS = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.2, -1.0]])
TEACHER = torch.tensor([[0.5, 0.1, -1.0], [2.0, 0.0, 1.0]])
BATCH = {
    "input_ids": torch.ones(2, 3, dtype=torch.long),
    "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    "labels": torch.tensor([0, 1]),
}


def soft(logits=LOGITS, teacher=TEACHER, batch=BATCH, **keywords) -> torch.Tensor:
    return prediction_loss((logits,), (teacher,), batch, UnitCounts.of(batch), **keywords)


@pytest.mark.parametrize("problem_type", ["single_label_classification", None])
def test_classes(problem_type):
    expected = kl_divergence(LOGITS, TEACHER, temperature=2.0)
    assert soft(temperature=2.0, problem_type=problem_type) == expected


def test_classes_may_be_compared_otherwise():
    expected = soft_cross_entropy(LOGITS, TEACHER, temperature=2.0)
    assert soft(temperature=2.0, output_loss="cross_entropy") == expected
    assert soft(temperature=2.0, output_loss="mse") == logit_mse(LOGITS, TEACHER)


@pytest.mark.parametrize("output_loss", ["kl", "cross_entropy", "mse"])
def test_examples_without_a_class_are_left_out(output_loss):
    logits, teacher = LOGITS.repeat(2, 1), TEACHER.repeat(2, 1)
    batch = {"input_ids": torch.ones(4, 3, dtype=torch.long), "labels": torch.tensor([0, -100, -100, 1])}
    kept = [0, 3]
    expected = soft(logits[kept], teacher[kept], {name: value[kept] for name, value in batch.items()})
    assert soft(logits, teacher, batch) == expected
    nothing = {**batch, "labels": torch.full((4,), -100)}
    assert soft(logits, teacher, nothing, output_loss=output_loss) == 0


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
    student, teacher = (LOGITS, LOGITS.flip(0)), (TEACHER, TEACHER.flip(0))
    loss = prediction_loss(student, teacher, batch, UnitCounts.of(batch), temperature=2.0)

    def without_padding(student, teacher):
        rows = [kl_divergence(student[:1], teacher[:1], 2.0), kl_divergence(student[1:, :2], teacher[1:, :2], 2.0)]
        return sum(rows) / 2

    expected = (without_padding(LOGITS, TEACHER) + without_padding(LOGITS.flip(0), TEACHER.flip(0))) / 2
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    ("case", "labels"), [("classification", 2), ("multi_label", 8), ("question_answering", 2), ("multiple_choice", 2)]
)
def test_counts(case, labels):
    batch = collate(make_rows(case, 2))
    examples, sequences, tokens, counted = UnitCounts.of(batch)
    assert (examples, tokens, counted) == (2, batch["attention_mask"].sum(), labels)
    assert sequences == (4 if case == "multiple_choice" else 2)


def test_counts_of_tokens_leave_out_the_ignored():
    batch = collate(make_rows("masked_lm", 4))
    assert UnitCounts.of(batch).labels == sum(label != -100 for row in batch["labels"].tolist() for label in row)


@pytest.mark.parametrize("case", ["classification", "multiple_choice"])
def test_features_of_examples_without_a_class_do_not_count(case):
    batch = collate(make_rows(case, 3))
    batch["labels"][1] = -100
    kept = {name: value[[0, 2]] for name, value in batch.items()}
    mask = feature_mask(batch)
    assert mask.sum() == UnitCounts.of(batch).tokens == kept["attention_mask"].sum()
    assert torch.equal(mask[mask.any(dim=-1)], kept["attention_mask"].flatten(end_dim=-2))
    assert UnitCounts.of(batch)[1:] == UnitCounts.of(kept)[1:] and UnitCounts.of(batch).examples == 3


def test_features_count_where_the_label_is_a_value_or_of_a_token():
    values = {**BATCH, "labels": torch.tensor([-100, 5])}
    assert feature_mask(values, "regression").sum() == 5
    assert feature_mask({**BATCH, "labels": torch.tensor([-100.0, 5.0])}).sum() == 5
    assert feature_mask({**BATCH, "labels": torch.full((2, 3), -100)}).sum() == 5


def test_without_a_mask_all_tokens_count():
    assert token_mask({"input_ids": torch.zeros(2, 3, dtype=torch.long)}).sum() == 6
    assert token_mask({"inputs_embeds": torch.zeros(2, 3, 8)}).shape == (2, 3)
    assert UnitCounts.of({"inputs_embeds": torch.zeros(2, 3, 8)}).examples == 2


@pytest.mark.parametrize("case", CASES)
def test_what_is_observed_of_a_model(case):
    model = make_model(case).eval()
    batch = collate(make_rows(case, 3))
    outputs = model(**batch, output_hidden_states=True)
    expected = [outputs.start_logits, outputs.end_logits] if "start_logits" in outputs else [outputs.logits]
    seen = Observation.of(outputs)
    assert all(ours is theirs for ours, theirs in zip(seen.logits, expected, strict=True))
    assert seen.hidden_states == outputs.hidden_states and seen.attention is None
    assert Observation.of(model(**batch)).hidden_states is None


def test_what_is_detached_has_no_graph_and_the_first_tokens():
    states = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    hidden = torch.randn(2, 5, 8, requires_grad=True)
    seen = Observation.of(ModelOutput(logits=LOGITS, hidden_states=(hidden,)), {1: AttentionStates(*states, 0.5)})
    short = seen.detached(max_length=2)
    assert torch.equal(short.hidden_states[0], hidden[:, :2]) and not short.hidden_states[0].requires_grad
    layer = short.attention[0]
    assert all(torch.equal(ours, theirs[:, :, :2]) for ours, theirs in zip(layer[:3], states, strict=True))
    assert not layer.query.requires_grad and layer.scaling == 0.5
    assert seen.detached().hidden_states[0].shape == hidden.shape
