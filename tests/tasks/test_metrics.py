"""Scores against hand-counted values and the libraries' own."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from transformers import EvalPrediction

from hf_elastic.tasks.metrics import compute_metrics


def test_one_label_per_row():
    logits = np.array([[2.0, 1, 0], [0, 3, 1], [0, 1, 0], [1, 0, 5]])
    scores = compute_metrics(EvalPrediction(logits, np.array([0, 1, 2, 2])))
    assert scores == {"accuracy": 0.75, "f1_macro": pytest.approx((1 + 2 / 3 + 2 / 3) / 3)}


def test_hidden_states_after_the_logits_do_not_matter():
    logits = np.array([[2.0, 1], [0, 3]])
    prediction = EvalPrediction((logits, np.zeros((2, 4))), np.array([0, 1]))
    assert compute_metrics(prediction)["accuracy"] == 1.0


def test_several_labels_per_row():
    logits = np.array([[1.0, -1, 1], [-1, -1, 1]])
    labels = np.array([[1.0, 0, 1], [1, 0, 1]])
    scores = compute_metrics(EvalPrediction(logits, labels), "multi_label_classification")
    assert scores["accuracy"] == 0.5
    assert scores["f1_micro"] == pytest.approx(6 / 7)


def test_regression():
    rng = np.random.default_rng(0)
    predicted, labels = rng.normal(size=(50, 1)), rng.normal(size=50)
    scores = compute_metrics(EvalPrediction(predicted, labels), "regression")
    assert scores["pearson"] == pytest.approx(np.corrcoef(predicted[:, 0], labels)[0, 1])
    assert scores["spearman"] == pytest.approx(spearmanr(predicted[:, 0], labels).statistic)
    assert scores["mse"] == pytest.approx(((predicted[:, 0] - labels) ** 2).mean())


def test_a_constant_prediction_correlates_with_nothing():
    scores = compute_metrics(EvalPrediction(np.ones((4, 1)), np.arange(4.0)), "regression")
    assert (scores["pearson"], scores["spearman"]) == (0.0, 0.0)
