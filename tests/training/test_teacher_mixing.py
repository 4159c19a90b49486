"""Mixtures and weights against computations of their own, and the gradients against those of separate losses."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Bernoulli, Categorical

from hf_elastic.training.objectives import binary_kl, kl_divergence, logit_mse
from hf_elastic.training.teacher_mixing import (
    confidence_weights,
    label_losses,
    mix_logits,
    prediction_kind,
    validation_weights,
)

SOURCES, UNITS, CLASSES = 3, 5, 4
LOGITS = list(torch.randn(SOURCES, UNITS, CLASSES, generator=torch.Generator().manual_seed(0)) * 3)
WEIGHTS = torch.tensor([1.0, 0.5, 2.5])
UNIT_WEIGHTS = torch.rand(SOURCES, UNITS, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 3, 1, 1, 2])


def softmax(values: np.ndarray) -> np.ndarray:
    return np.exp(values) / np.exp(values).sum()


@pytest.mark.parametrize("weights", [WEIGHTS, UNIT_WEIGHTS], ids=["sources", "units"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_distribution_of_a_mixture_is_the_mean_of_distributions(weights, temperature):
    mixed = mix_logits(LOGITS, weights, temperature)
    for unit in range(UNITS):
        of_unit = np.array([weights[s, unit] if weights.dim() == 2 else weights[s] for s in range(SOURCES)], float)
        softened = [softmax(LOGITS[s][unit].double().numpy() / temperature) for s in range(SOURCES)]
        expected = np.average(softened, axis=0, weights=of_unit)
        np.testing.assert_allclose(softmax(mixed[unit].double().numpy() / temperature), expected, rtol=1e-5)


def test_several_labels_have_the_mean_of_their_probabilities():
    mixed = mix_logits(LOGITS, WEIGHTS, temperature=2.0, kind="labels")
    probabilities = np.stack([1 / (1 + np.exp(-each.double().numpy() / 2)) for each in LOGITS])
    expected = np.average(probabilities, axis=0, weights=WEIGHTS)
    np.testing.assert_allclose(1 / (1 + np.exp(-mixed.double().numpy() / 2)), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "objective"), [("classes", kl_divergence), ("labels", binary_kl), ("values", logit_mse)]
)
def test_learning_from_the_mixture_is_learning_from_all(kind, objective):
    settings = {} if kind == "values" else {"temperature": 2.0}

    def gradient(loss_of):
        student = torch.linspace(-1, 1, UNITS * CLASSES).reshape(UNITS, CLASSES).requires_grad_()
        loss_of(student).backward()
        return student.grad

    shares = WEIGHTS / WEIGHTS.sum()
    mixed = mix_logits(LOGITS, WEIGHTS, kind=kind, **settings)
    one = gradient(lambda student: objective(student, mixed, **settings))
    each = gradient(lambda student: sum(shares[s] * objective(student, LOGITS[s], **settings) for s in range(SOURCES)))
    torch.testing.assert_close(one, each)
    assert one.abs().max() > 1e-3


def test_one_weight_alone_leaves_its_source():
    mixed = mix_logits(LOGITS, torch.tensor([0.0, 1.0, 0.0]), temperature=3.0)
    torch.testing.assert_close(mixed.softmax(-1), LOGITS[1].softmax(-1))
    assert mix_logits(LOGITS[:1], WEIGHTS[:1]) is LOGITS[0]


def test_classes_that_do_not_exist_take_no_probability():
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
    mixed = mix_logits(LOGITS, WEIGHTS, temperature=0.5, class_mask=mask)
    assert mixed.isfinite().all()
    for unit, length in enumerate(mask.sum(dim=-1).tolist()):
        alone = mix_logits([each[unit, :length] for each in LOGITS], WEIGHTS, temperature=0.5)
        torch.testing.assert_close(mixed[unit, :length], alone)
    student = torch.zeros(UNITS, CLASSES)
    torch.testing.assert_close(
        kl_divergence(student, mixed, 0.5, class_mask=mask),
        sum(kl_divergence(student[u, :n], mixed[u, :n], 0.5) for u, n in enumerate(mask.sum(dim=-1).tolist())) / UNITS,
    )


def test_sources_that_are_sure_of_different_classes_stay_finite():
    sure = [torch.tensor([[500.0, 0.0]]), torch.tensor([[0.0, 500.0]])]
    torch.testing.assert_close(mix_logits(sure, torch.ones(2)).softmax(-1), torch.tensor([[0.5, 0.5]]))
    mean = torch.tensor([[0.75, 0.75]])  # of 1 and 0.5
    torch.testing.assert_close(mix_logits(sure, torch.ones(2), kind="labels").sigmoid(), mean)


def test_another_number_of_weights():
    with pytest.raises(ValueError, match="2 weights for 3 sources"):
        mix_logits(LOGITS, torch.ones(2))


def test_confidence_in_labels_is_that_of_the_literature_for_two_teachers():
    found = confidence_weights(LOGITS[:2], torch.ones(2), labels=LABELS)
    for unit, label in enumerate(LABELS.tolist()):
        losses = [-math.log(softmax(each[unit].double().numpy())[label]) for each in LOGITS[:2]]
        expected = [1 - math.exp(loss) / sum(map(math.exp, losses)) for loss in losses]  # over K - 1, which is 1
        np.testing.assert_allclose(found[:, unit], expected, rtol=1e-4)


def test_confidence_is_the_weight_times_the_likelihood_of_the_label():
    found = confidence_weights(LOGITS, WEIGHTS, labels=LABELS)
    expected = WEIGHTS[:, None] * torch.stack([Categorical(logits=each).log_prob(LABELS).exp() for each in LOGITS])
    torch.testing.assert_close(found, expected / expected.sum(dim=0))


def test_a_teacher_that_alone_is_right_counts_nearly_alone():
    right, wrong = torch.tensor([[8.0, 0.0]]), torch.tensor([[0.0, 8.0]])
    assert confidence_weights([right, wrong, wrong, wrong], torch.ones(4), labels=torch.tensor([0]))[0] > 0.99


def test_confidence_in_several_labels_is_the_mean_of_their_log_likelihoods():
    labels = (torch.rand(UNITS, CLASSES, generator=torch.Generator().manual_seed(2)) > 0.5).float()
    found = confidence_weights(LOGITS, WEIGHTS, "labels", labels)
    means = torch.stack([Bernoulli(logits=each).log_prob(labels).mean(dim=-1) for each in LOGITS])
    expected = WEIGHTS[:, None] * means.exp()
    torch.testing.assert_close(found, expected / expected.sum(dim=0))


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_confidence_without_labels_is_that_of_the_entropy(kind):
    found = confidence_weights(LOGITS, WEIGHTS, kind)
    if kind == "classes":
        entropy = torch.stack([Categorical(logits=each).entropy() / math.log(CLASSES) for each in LOGITS])
    else:
        entropy = torch.stack([Bernoulli(logits=each).entropy().mean(dim=-1) / math.log(2) for each in LOGITS])
    expected = WEIGHTS[:, None] * (1 - entropy)
    torch.testing.assert_close(found, expected / expected.sum(dim=0))


def test_confidence_over_classes_that_exist():
    mask = torch.tensor([[1, 1, 1, 0]]).expand(UNITS, CLASSES)
    for labels in (None, LABELS.clamp(max=2)):
        found = confidence_weights(LOGITS, WEIGHTS, labels=labels, class_mask=mask)
        torch.testing.assert_close(found, confidence_weights([x[:, :3] for x in LOGITS], WEIGHTS, labels=labels))


def test_what_gives_no_confidence_keeps_the_weights():
    prior = WEIGHTS / WEIGHTS.sum()
    ignored = confidence_weights(LOGITS, WEIGHTS, labels=torch.tensor([-100, 0, 0, 0, CLASSES]))
    torch.testing.assert_close(ignored[:, [0, 4]], prior[:, None].expand(-1, 2))
    unsure = confidence_weights([torch.zeros(2, 4)] * 3, WEIGHTS)
    torch.testing.assert_close(unsure, prior[:, None].expand(-1, 2))
    torch.testing.assert_close(confidence_weights(LOGITS, WEIGHTS, "values"), prior[:, None].expand(-1, UNITS))


def test_confidence_mixes_units_by_their_own_weights():
    tokens = [each.reshape(1, UNITS, CLASSES) for each in LOGITS]
    weights = confidence_weights(tokens, WEIGHTS, labels=LABELS[None])
    assert weights.shape == (SOURCES, 1, UNITS)
    expected = mix_logits(LOGITS, confidence_weights(LOGITS, WEIGHTS, labels=LABELS))
    torch.testing.assert_close(mix_logits(tokens, weights)[0], expected)


def test_label_losses_are_those_of_torch():
    losses, known = label_losses(LOGITS[0], torch.tensor([0, 3, -100, 1, 2]))
    expected = torch.nn.functional.cross_entropy(LOGITS[0], torch.tensor([0, 3, -100, 1, 2]), reduction="none")
    torch.testing.assert_close(losses, expected)
    assert known.tolist() == [True, True, False, True, True]
    values, known = label_losses(LOGITS[0][:, :1], torch.arange(5.0), "values")
    torch.testing.assert_close(values, (LOGITS[0][:, 0] - torch.arange(5.0)) ** 2)
    assert known.all()


def test_validation_weights():
    weights = validation_weights([1.0, 0.5, 0.0], [0.2, 0.7, 0.1])
    parts = [math.exp(-0.2), 0.5 * math.exp(-0.7), 0.0]
    np.testing.assert_allclose(weights, [1.5 * part / sum(parts) for part in parts])


@pytest.mark.parametrize(
    ("logits", "labels", "problem_type", "kind"),
    [
        (torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), None, "classes"),
        (torch.zeros(2, 3), torch.zeros(2, 3), None, "labels"),
        (torch.zeros(2, 3), None, "multi_label_classification", "labels"),
        (torch.zeros(2, 1), torch.zeros(2), None, "values"),
        (torch.zeros(2, 3), torch.zeros(2, 3), "regression", "values"),
        (torch.zeros(2, 1), torch.zeros(2, dtype=torch.long), "single_label_classification", "classes"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long), None, "classes"),
    ],
)
def test_kinds_of_predictions(logits, labels, problem_type, kind):
    assert prediction_kind(logits, labels, problem_type) == kind
