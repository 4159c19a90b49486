"""The fitted temperature is the one that the labels were drawn with, and the best of a fine grid."""

import numpy as np
import pytest
from scipy.special import log_softmax as scipy_log_softmax
from scipy.special import softmax

from hf_elastic.tasks.probability_calibration import fit_temperature, log_softmax


def drawn(temperature, rows=4000, labels=3, seed=0):
    """Logits, and labels drawn from their probabilities at a temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, labels)) * 3
    cumulated = softmax(logits / temperature, axis=-1).cumsum(-1)
    return logits, (rng.random((rows, 1)) > cumulated).sum(-1)


@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 2)])
def test_log_softmax(shape):
    logits = np.random.default_rng(0).normal(size=shape) * 50
    np.testing.assert_allclose(log_softmax(logits), scipy_log_softmax(logits, axis=-1), atol=1e-12)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_that_labels_were_drawn_with_is_found(temperature):
    assert fit_temperature(*drawn(temperature)) == pytest.approx(temperature, rel=0.1)


def test_no_other_temperature_is_better():
    logits, labels = drawn(1.7, rows=60)
    grid = np.geomspace(0.05, 20, 4000)
    losses = [-scipy_log_softmax(logits / t, axis=-1)[range(60), labels].mean() for t in grid]
    assert fit_temperature(logits, labels) == pytest.approx(grid[np.argmin(losses)], rel=2e-3)


def test_a_model_that_is_always_right_or_always_wrong_gets_a_bound():
    logits = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert fit_temperature(logits, np.array([0, 1])) == pytest.approx(0.05, rel=0.01)
    assert fit_temperature(logits, np.array([1, 0])) == pytest.approx(20, rel=0.01)
