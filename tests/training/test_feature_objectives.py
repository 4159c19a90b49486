"""The losses of features against references that are written another way, and what must hold for all of them."""

import math
from functools import partial

import pytest
import torch
from torch.distributions import Categorical
from torch.distributions import kl_divergence as exact_kl

from hf_elastic.training.feature_objectives import (
    align_hidden_states,
    attention_divergence,
    hidden_state_contrastive,
    hidden_state_cosine,
    hidden_state_mse,
    relation_divergence,
)

LENGTHS = [6, 3, 1, 4]
MASK = (torch.arange(6) < torch.tensor(LENGTHS)[:, None]).long()


def hidden_states() -> tuple[torch.Tensor, torch.Tensor]:
    """`[4, 6, 16]` each."""
    student, teacher = torch.randn(2, 4, 6, 16, generator=torch.Generator().manual_seed(1))
    return student, teacher


def head_states() -> tuple[torch.Tensor, torch.Tensor]:
    """Of 6 heads of 4 features and of 3 heads of 16: `[4, 6, 6, 4]` and `[4, 3, 6, 16]`."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(4, 6, 6, 4, generator=generator), torch.randn(4, 3, 6, 16, generator=generator)


def attention_maps(teacher_heads: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Of 4 heads each: `[4, 4, 6, 6]`, over the non-padding keys."""
    generator = torch.Generator().manual_seed(3)
    sides = (torch.randn(4, heads, 6, 6, generator=generator) * 3 for heads in (4, teacher_heads))
    keys = ~MASK[:, None, None, :].bool()
    student, teacher = (scores.masked_fill(keys, -math.inf).softmax(dim=-1) for scores in sides)
    return student, teacher


def spoil(states: torch.Tensor) -> torch.Tensor:
    """Puts NaN wherever the position is padding; for maps, that of the query or of the key."""
    padding = ~MASK.bool()
    if states.dim() == 3:
        return states.masked_fill(padding[..., None], math.nan)
    states = states.masked_fill(padding[:, None, :, None], math.nan)
    return states.masked_fill(padding[:, None, None, :], math.nan) if states.shape[-2:] == (6, 6) else states


relations = partial(relation_divergence, relation_heads=8)
# Each loss with the function that makes its inputs.
LOSSES = {
    "mse": (hidden_state_mse, hidden_states),
    "cosine": (hidden_state_cosine, hidden_states),
    "contrastive": (hidden_state_contrastive, hidden_states),
    "attention": (attention_divergence, attention_maps),
    "attention-of-other-heads": (attention_divergence, partial(attention_maps, 3)),
    "relations": (relations, head_states),
}
SUMS = sorted(LOSSES.keys() - {"contrastive"})


def test_mse_is_the_mean_square():
    student, teacher = hidden_states()
    torch.testing.assert_close(hidden_state_mse(student, teacher), torch.nn.MSELoss()(student, teacher))


def test_cosine_is_that_of_the_angle():
    student, teacher = hidden_states()
    rows = zip(student[MASK.bool()], teacher[MASK.bool()], strict=True)
    expected = sum(1 - (s @ t) / (s.square().sum() * t.square().sum()).sqrt() for s, t in rows) / sum(LENGTHS)
    torch.testing.assert_close(hidden_state_cosine(student, teacher, MASK), expected)


def test_cosine_does_not_depend_on_lengths():
    student, teacher = hidden_states()
    torch.testing.assert_close(hidden_state_cosine(3 * student, 0.1 * teacher), hidden_state_cosine(student, teacher))
    assert hidden_state_cosine(student, -student).item() == pytest.approx(2.0)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_contrastive_is_the_probability_of_the_own_example(temperature):
    student, teacher = hidden_states()
    ours, theirs = ([side[i, :n].mean(dim=0) for i, n in enumerate(LENGTHS)] for side in (student, teacher))
    expected = 0.0
    for i in range(4):
        weights = [math.exp(torch.cosine_similarity(ours[i], other, dim=0) / temperature) for other in theirs]
        expected -= math.log(weights[i] / sum(weights)) / 4
    actual = hidden_state_contrastive(student, teacher, MASK, temperature=temperature)
    assert actual.item() == pytest.approx(expected, rel=1e-5)


def test_contrastive_leaves_out_examples_without_tokens():
    student, teacher = hidden_states()
    mask = MASK.clone()
    mask[2] = 0
    kept = [0, 1, 3]
    expected = hidden_state_contrastive(student[kept], teacher[kept], MASK[kept])
    torch.testing.assert_close(hidden_state_contrastive(student, teacher, mask), expected)


def test_contrastive_is_smallest_for_the_teachers_own_states():
    student, teacher = hidden_states()
    best = hidden_state_contrastive(teacher, teacher, MASK)
    assert best < hidden_state_contrastive(student, teacher, MASK)
    assert best < hidden_state_contrastive(teacher.roll(1, dims=0), teacher, MASK.roll(1, dims=0))


def kl_by_token(student, teacher) -> torch.Tensor:
    """Mean over the tokens of each example, summed, of distributions given as functions of (example, head, token)."""
    total = 0.0
    for i, length in enumerate(LENGTHS):
        for token in range(length):
            total = total + exact_kl(Categorical(teacher(i, token, length)), Categorical(student(i, token, length)))
    return total / sum(LENGTHS)


def test_attention_divergence_of_equal_heads_is_their_mean():
    student, teacher = attention_maps()
    heads = [
        kl_by_token(lambda i, t, n, h=h: student[i, h, t, :n], lambda i, t, n, h=h: teacher[i, h, t, :n])
        for h in range(4)
    ]
    torch.testing.assert_close(attention_divergence(student, teacher, MASK), sum(heads) / 4)


def test_attention_divergence_of_other_heads_is_that_of_the_means():
    student, teacher = attention_maps(teacher_heads=3)
    expected = kl_by_token(lambda i, t, n: student[i, :, t, :n].mean(0), lambda i, t, n: teacher[i, :, t, :n].mean(0))
    torch.testing.assert_close(attention_divergence(student, teacher, MASK), expected)


def test_attention_that_was_rounded_to_zero_stays_finite():
    student = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]], dtype=torch.float16, requires_grad=True)
    value = attention_divergence(student, student.detach().flip(-1))
    value.backward()
    assert torch.isfinite(value) and torch.isfinite(student.grad).all()
    assert attention_divergence(student, student).item() == 0


def test_relations_are_those_of_the_rejoined_heads():
    student, teacher = head_states()

    def relation(states, head):
        size = states.shape[1] * states.shape[3] // 8

        def of(i, token, length):
            joined = torch.cat([states[i, h, :length] for h in range(states.shape[1])], dim=-1)
            vectors = joined[:, head * size : (head + 1) * size]
            return torch.stack([vectors[token].dot(other) for other in vectors]).div(math.sqrt(size)).softmax(dim=-1)

        return of

    heads = [kl_by_token(relation(student, head), relation(teacher, head)) for head in range(8)]
    torch.testing.assert_close(relations(student, teacher, MASK), sum(heads) / 8)


def test_relations_do_not_depend_on_how_features_are_cut_into_attention_heads():
    student, teacher = head_states()
    joined = student.transpose(1, 2).flatten(2)
    other = joined.unflatten(-1, (2, 12)).transpose(1, 2)
    torch.testing.assert_close(relations(other, teacher, MASK), relations(student, teacher, MASK))


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_reach_the_student_and_never_the_teacher(name):
    loss, inputs = LOSSES[name]
    student, teacher = (side.requires_grad_() for side in inputs())
    loss(student, teacher, MASK).backward()
    assert student.grad[0].abs().sum() > 0
    assert teacher.grad is None


@pytest.mark.parametrize("name", ["mse", "cosine", "attention", "relations"])
def test_equal_features_cost_nothing(name):
    loss, inputs = LOSSES[name]
    student, _ = inputs()
    assert loss(student, student.clone(), MASK).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_padding_contributes_nothing(name):
    loss, inputs = LOSSES[name]
    student, teacher = inputs()
    expected = loss(student, teacher, MASK)
    spoilt = spoil(student).requires_grad_()
    value = loss(spoilt, spoil(teacher), MASK)
    value.backward()
    torch.testing.assert_close(value, expected)
    assert torch.isfinite(spoilt.grad).all()
    assert (spoilt.grad[spoilt.isnan()] == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_without_padding_no_mask_is_needed(name):
    loss, inputs = LOSSES[name]
    student, teacher = (side[:1] for side in inputs())
    torch.testing.assert_close(loss(student, teacher), loss(student, teacher, MASK[:1]))


@pytest.mark.parametrize("name", SUMS)
def test_parts_of_a_batch_add_up(name):
    loss, inputs = LOSSES[name]
    student, teacher = inputs()
    tokens = MASK.sum()
    parts = [loss(student[i], teacher[i], MASK[i], normalizer=tokens) for i in (slice(2), slice(2, 4))]
    whole = loss(student, teacher, MASK)
    torch.testing.assert_close(torch.stack(parts).sum(), whole)
    torch.testing.assert_close(loss(student, teacher, MASK, normalizer=tokens.item()), whole)


@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_without_tokens_costs_nothing(name):
    loss, inputs = LOSSES[name]
    student, teacher = inputs()
    student.requires_grad_()
    for normalizer in (None, 0, torch.tensor(0)):
        value = loss(student, teacher, torch.zeros_like(MASK), normalizer)
        assert value.item() == 0
        assert (torch.autograd.grad(value, student)[0] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_is_computed_in_float32(name, dtype):
    loss, inputs = LOSSES[name]
    student, teacher = (side.to(dtype) for side in inputs())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(student, teacher, MASK)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(student.float(), teacher.float(), MASK), rtol=1e-6, atol=1e-7)


def test_align_hidden_states_is_the_mean_over_the_map():
    student, teacher = hidden_states()
    student_states = tuple(student * i for i in range(3))
    teacher_states = tuple(teacher * i for i in range(5))
    squares = [(student * i - teacher * 2 * i)[MASK.bool()].square().mean() for i in (1, 2)]
    value = align_hidden_states(student_states, teacher_states, MASK)
    torch.testing.assert_close(value, sum(squares) / 2)
    torch.testing.assert_close(
        value, align_hidden_states(student_states, teacher_states, MASK, normalizer=MASK.sum().item())
    )


def test_align_hidden_states_leaves_out_the_embeddings():
    student, teacher = hidden_states()
    first = align_hidden_states((student, student), (teacher, teacher), MASK)
    torch.testing.assert_close(align_hidden_states((student + 9, student), (teacher, teacher), MASK), first)


def test_remedy_for_a_teacher_of_another_width():
    with pytest.raises(ValueError, match="16 and 32.*hidden_weight=0"):
        align_hidden_states((torch.zeros(1, 2, 16),) * 3, (torch.zeros(1, 2, 32),) * 3)


@pytest.mark.parametrize(("loss"), [hidden_state_mse, hidden_state_cosine, hidden_state_contrastive])
def test_other_inputs_are_named(loss):
    with pytest.raises(ValueError, match=r"\(2, 3, 4\) and \(2, 5, 4\)"):
        loss(torch.zeros(2, 3, 4), torch.zeros(2, 5, 4))


def test_relation_heads_must_divide_both_widths():
    student, teacher = head_states()
    with pytest.raises(ValueError, match="relation_heads=16 .* 24 features of the student"):
        relation_divergence(student, teacher, relation_heads=16)
    with pytest.raises(ValueError, match="relation_heads=16 .* 40 features of the teacher"):
        relation_divergence(teacher, torch.zeros(4, 4, 6, 10), relation_heads=16)


@pytest.mark.parametrize("loss", [attention_divergence, relations])
def test_other_positions_are_named(loss):
    with pytest.raises(ValueError, match=r"'student': \(2, 3\), 'teacher': \(2, 4\)"):
        loss(torch.zeros(2, 8, 3, 3), torch.zeros(2, 8, 4, 4))
    with pytest.raises(ValueError, match=r"'mask': \(2, 4\)"):
        loss(torch.zeros(2, 8, 3, 3), torch.zeros(2, 8, 3, 3), torch.ones(2, 4))
