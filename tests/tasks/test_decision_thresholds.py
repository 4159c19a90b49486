"""The chosen threshold is as good as the best that trying all of them by scikit-learn finds."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task
from hf_elastic.tasks.decision_thresholds import fit_threshold, threshold_metrics

SCORES = {
    "accuracy": accuracy_score,
    "f1": lambda labels, predicted: f1_score(labels, predicted, zero_division=0),
    "f1_answers": lambda labels, predicted: f1_score(labels, predicted, zero_division=0),
    "matthews_correlation": matthews_corrcoef,
}


def score_at(threshold, probabilities, labels, metrics):
    predicted = (probabilities > threshold).astype(int)
    return np.mean([SCORES[name](labels, predicted) for name in metrics])


def rows(seed, number=80, share=0.25):
    """Logits that know something of labels of which a share is 1."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(number) < share).astype(int)
    logits = rng.normal(size=(number, 2))
    logits[:, 1] += labels * 1.5 - 1
    return logits, labels


@pytest.mark.parametrize("metrics", [("f1",), ("matthews_correlation",), ("accuracy", "f1"), ("f1_answers",)])
@pytest.mark.parametrize("seed", range(3))
def test_none_is_better(metrics, seed):
    logits, labels = rows(seed)
    probabilities = expit(logits[:, 1] - logits[:, 0])
    ordered = np.sort(probabilities)
    tried = [0.5, *((ordered[1:] + ordered[:-1]) / 2)]
    best = max(score_at(threshold, probabilities, labels, metrics) for threshold in tried)
    threshold = fit_threshold(logits, labels, metrics)
    assert score_at(threshold, probabilities, labels, metrics) == pytest.approx(best, abs=1e-12)
    assert best > score_at(0.5, probabilities, labels, metrics) or threshold == 0.5


def test_one_half_is_taken_where_it_is_as_good_as_others():
    logits = np.array([[0.0, -3.0], [0.0, -1.0], [0.0, 2.0], [0.0, 3.0]])
    assert fit_threshold(logits, np.array([0, 0, 1, 1]), ("f1",)) == 0.5
    assert fit_threshold(logits, np.array([0, 0, 0, 0]), ("matthews_correlation",)) == 0.5
    assert fit_threshold(logits[:1], np.array([1]), ("accuracy", "f1")) == 0.5


def test_rows_with_the_same_logits_are_not_parted():
    logits = np.array([[0.0, -2.0], [0.0, -2.0], [0.0, -2.0], [0.0, -1.0]])
    assert fit_threshold(logits, np.array([0, 0, 1, 1]), ("f1",)) == pytest.approx(expit(-1.5))


def test_extreme_logits_give_a_threshold_that_other_rows_can_use():
    logits = np.array([[0.0, -2000.0], [0.0, -1000.0], [0.0, 1000.0]])
    assert fit_threshold(logits, np.array([0, 1, 1]), ("f1",)) == 0.5


def test_counts_of_a_large_split_do_not_overflow():
    logits, labels = rows(0, number=200_000)
    threshold = fit_threshold(logits, labels, ("matthews_correlation",))
    probabilities = expit(logits[:, 1] - logits[:, 0])
    found = score_at(threshold, probabilities, labels, ("matthews_correlation",))
    assert found > score_at(0.5, probabilities, labels, ("matthews_correlation",)) > 0.2


def test_which_tasks_have_one():
    metrics = {
        (benchmark, name): threshold_metrics(task)
        for benchmark in BENCHMARKS
        for name, task in BENCHMARKS[benchmark].items()
    }
    assert {key: names for key, names in metrics.items() if names} == {
        ("glue", "cola"): ("matthews_correlation",),
        ("glue", "mrpc"): ("accuracy", "f1"),
        ("glue", "qqp"): ("accuracy", "f1"),
        ("super_glue", "multirc"): ("f1_answers",),
        ("super_glue", "axb"): ("matthews_correlation",),
    }
    assert threshold_metrics(find_task("super_glue", "record")) == ()
