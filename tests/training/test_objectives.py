"""The losses against references that are written another way, and what must hold for all of them."""

import math

import pytest
import torch
from torch.distributions import Bernoulli, Categorical
from torch.distributions import kl_divergence as exact_kl

from hf_elastic.training.objectives import binary_kl, kl_divergence, logit_mse, soft_cross_entropy

PAIR_LOSSES = [kl_divergence, soft_cross_entropy, logit_mse, binary_kl]
DISTANCES = [kl_divergence, logit_mse, binary_kl]  # which are 0 where both agree
MASKED_LOSSES = [kl_divergence, soft_cross_entropy, logit_mse]


@pytest.fixture
def logits() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 8, 5, generator=generator) * 3
    return student.requires_grad_(), teacher.requires_grad_()


@pytest.fixture
def states() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states of student and teacher `[4, 6, 16]`, and a mask with padding `[4, 6]`."""
    generator = torch.Generator().manual_seed(1)
    student, teacher = torch.randn(2, 4, 6, 16, generator=generator)
    mask = (torch.arange(6) < torch.tensor([[6], [3], [1], [4]])).long()
    return student, teacher, mask


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_kl_divergence_is_that_of_the_softened_distributions(logits, temperature):
    student, teacher = logits
    expected = exact_kl(Categorical(logits=teacher / temperature), Categorical(logits=student / temperature))
    actual = kl_divergence(student, teacher, temperature)
    torch.testing.assert_close(actual, expected.mean() * temperature**2)


def test_kl_divergence_by_hand():
    student, teacher = torch.tensor([[0.0, 0.0]]), torch.tensor([[math.log(3.0), 0.0]])
    expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert kl_divergence(student, teacher).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_soft_cross_entropy_is_torchs_with_probabilities_as_target(logits, temperature):
    student, teacher = logits
    target = (teacher / temperature).softmax(dim=-1).detach()
    expected = torch.nn.CrossEntropyLoss()(student / temperature, target)
    torch.testing.assert_close(soft_cross_entropy(student, teacher, temperature), expected * temperature**2)


def test_soft_cross_entropy_has_the_gradient_of_kl_divergence(logits):
    student, teacher = logits
    losses = [loss(student, teacher, 2.0) for loss in (soft_cross_entropy, kl_divergence)]
    first, second = (torch.autograd.grad(loss, student)[0] for loss in losses)
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_binary_kl_treats_labels_as_independent(logits, temperature):
    student, teacher = logits
    expected = exact_kl(Bernoulli(logits=teacher / temperature), Bernoulli(logits=student / temperature))
    torch.testing.assert_close(binary_kl(student, teacher, temperature), expected.mean() * temperature**2)


@pytest.mark.parametrize("loss", [kl_divergence, soft_cross_entropy, binary_kl])
def test_extreme_logits_stay_finite(loss):
    student = torch.tensor([[300.0, -300.0, 0.0]], requires_grad=True)
    value = loss(student, -student.detach(), temperature=0.5)
    value.backward()
    assert torch.isfinite(value) and torch.isfinite(student.grad).all()


def test_logit_mse_is_the_mean_square(logits):
    student, teacher = logits
    torch.testing.assert_close(logit_mse(student, teacher), torch.nn.MSELoss()(student, teacher))


def test_temperature_keeps_the_size_of_the_gradient(logits):
    student, teacher = logits
    norms = []
    for temperature in (50.0, 100.0):
        (gradient,) = torch.autograd.grad(kl_divergence(student, teacher, temperature), student)
        norms.append(gradient.norm().item())
    assert norms[0] == pytest.approx(norms[1], rel=0.1)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_gradients_reach_the_student_and_never_the_teacher(loss, logits):
    student, teacher = logits
    loss(student, teacher).backward()
    assert student.grad.abs().sum() > 0
    assert teacher.grad is None


@pytest.mark.parametrize("loss", DISTANCES)
def test_equal_outputs_cost_nothing(loss, logits):
    assert loss(logits[0], logits[0].detach().clone()).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_split_batch_equals_whole_batch(loss, logits):
    student, teacher = logits
    whole = loss(student, teacher, normalizer=torch.tensor(8))
    parts = [loss(s, t, normalizer=8) for s, t in zip(student.split(3), teacher.split(3), strict=True)]
    torch.testing.assert_close(torch.stack(parts).sum(), whole)
    torch.testing.assert_close(whole, loss(student, teacher))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_half_precision_is_computed_in_float32(loss, dtype, logits):
    student, teacher = (tensor.detach().to(dtype) for tensor in logits)
    value = loss(student, teacher)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(student.float(), teacher.float()))


@pytest.mark.parametrize("loss", MASKED_LOSSES)
def test_padding_contributes_nothing(loss, states):
    student, teacher, mask = states
    real = mask.bool()
    expected = loss(student[real], teacher[real])
    student = student.masked_fill(~real[..., None], float("nan")).requires_grad_()
    value = loss(student, teacher.masked_fill(~real[..., None], 1e4), mask=mask)
    value.backward()
    torch.testing.assert_close(value, expected)
    assert (student.grad[~real] == 0).all() and torch.isfinite(student.grad).all()


@pytest.mark.parametrize("loss", MASKED_LOSSES)
def test_parts_with_different_padding_add_up(loss, states):
    student, teacher, mask = states
    parts = [loss(student[i], teacher[i], mask=mask[i], normalizer=mask.sum()) for i in range(4)]
    torch.testing.assert_close(torch.stack(parts).sum(), loss(student, teacher, mask=mask))


@pytest.mark.parametrize("loss", MASKED_LOSSES)
def test_a_part_without_units_adds_zero(loss, states):
    student, teacher, mask = states
    student.requires_grad_()
    value = loss(student, teacher, mask=torch.zeros_like(mask))
    value.backward()
    assert value.item() == 0 and (student.grad == 0).all()


@pytest.mark.parametrize("none", [0, torch.tensor(0)])
@pytest.mark.parametrize("loss", MASKED_LOSSES)
def test_a_batch_without_units_costs_nothing(loss, states, none):
    student, teacher, mask = states
    student.requires_grad_()
    value = loss(student, teacher, mask=torch.zeros_like(mask), normalizer=none)
    value.backward()
    assert value.item() == 0 and (student.grad == 0).all()


@pytest.mark.parametrize("loss", MASKED_LOSSES)
def test_absent_classes_do_not_exist(loss):
    """As for the positions of a question's answer: the padding of one row is not a possible answer."""
    torch.manual_seed(0)
    student, teacher = torch.randn(2, 2, 6)
    class_mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    expected = (loss(student[:1], teacher[:1]) + loss(student[1:, :3], teacher[1:, :3])) / 2
    student[1, 3:] = float("nan")
    student.requires_grad_()
    value = loss(student, teacher, class_mask=class_mask)
    value.backward()
    torch.testing.assert_close(value, expected)
    assert (student.grad[1, 3:] == 0).all() and torch.isfinite(student.grad).all()


@pytest.mark.parametrize("loss", [kl_divergence, soft_cross_entropy])
def test_absent_classes_stay_finite_at_a_low_temperature(loss):
    class_mask = torch.tensor([[1, 1, 0]])
    assert torch.isfinite(loss(torch.randn(1, 3), torch.randn(1, 3), temperature=0.1, class_mask=class_mask))


def test_units_and_classes_may_both_be_left_out():
    torch.manual_seed(0)
    student, teacher = torch.randn(2, 2, 3, 4)
    mask, class_mask = torch.tensor([[1, 0, 1], [0, 0, 1]]), torch.tensor([1, 1, 0, 1]).expand(2, 3, 4)
    kept = class_mask[0, 0].bool()
    for loss in MASKED_LOSSES:
        expected = loss(student[mask.bool()][:, kept], teacher[mask.bool()][:, kept])
        torch.testing.assert_close(loss(student, teacher, mask=mask, class_mask=class_mask), expected)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_different_sizes_are_named(loss):
    with pytest.raises(ValueError, match="5 and 7"):
        loss(torch.zeros(2, 5), torch.zeros(2, 7))
    with pytest.raises(ValueError, match=r"\(2, 5\) and \(3, 5\)"):
        loss(torch.zeros(2, 5), torch.zeros(3, 5))


def test_wrong_mask_is_named():
    with pytest.raises(ValueError, match=r"\(2, 5\).*\(2, 4\)"):
        kl_divergence(torch.zeros(2, 4, 3), torch.zeros(2, 4, 3), mask=torch.ones(2, 5))
