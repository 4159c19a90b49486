"""The probability from which a binary task says yes, where the task's score is not best served by one half."""

from collections.abc import Callable, Sequence

import numpy as np

from .input_formats import Choices, Entities
from .task import Task

# A threshold beyond these is of no use on other rows, and its log-odds would lose their precision.
_PROBABILITIES = (1e-6, 1 - 1e-6)


def threshold_metrics(task: Task) -> tuple[str, ...]:
    """Names of the task's scores that a threshold is chosen by.

    None for a task with more than two labels, for one whose examples or choices compete for the answer, and for one
    that is scored by accuracy alone, which calibrated probabilities serve best at one half.
    """
    if len(task.label_names) != 2 or isinstance(task.input_format, Choices | Entities):
        return ()
    names = tuple(name for name in task.metrics if name in _SCORES)
    return () if names == ("accuracy",) else names


def fit_threshold(logits: np.ndarray, labels: np.ndarray, metrics: Sequence[str]) -> float:
    """Gives the probability of label 1 above which the rows are best given label 1.

    Args:
        logits: Of rows that the model has not learned from, calibrated.
        labels: Their label ids, 0 or 1.
        metrics: Names of the scores whose mean is to be highest, see [`threshold_metrics`]. Of thresholds that are
            equally good, the one nearest to one half is taken.

    Shape:
        logits: `[rows, 2]`.
        labels: `[rows]`.

    References:
        Lipton, Elkan and Narayanaswamy 2014, Thresholding Classifiers to Maximize F1 Score,
        https://arxiv.org/abs/1402.1892
    """
    logits, labels = np.asarray(logits, dtype=np.float64), np.asarray(labels)
    margins = logits[:, 1] - logits[:, 0]
    order = np.argsort(margins, kind="stable")
    distinct = np.unique(margins)
    log_odds = np.append((distinct[1:] + distinct[:-1]) / 2, 0.0)
    with np.errstate(over="ignore"):  # exp of a great number: a probability of 0, which is left out
        thresholds = 1 / (1 + np.exp(-log_odds))
    useful = (thresholds > _PROBABILITIES[0]) & (thresholds < _PROBABILITIES[1])
    log_odds, thresholds = log_odds[useful], thresholds[useful]

    below = np.searchsorted(margins[order], log_odds, side="right")
    ones_below = np.concatenate([[0], np.cumsum(labels[order])])[below]
    ones = labels.sum()
    counts = (ones - ones_below, len(labels) - below - (ones - ones_below), ones_below, below - ones_below)
    scores = np.mean([_SCORES[name](*counts) for name in metrics], axis=0)
    return float(thresholds[np.lexsort((np.abs(log_odds), -scores))[0]])


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """The ratio, and 0 where nothing is divided by nothing, as the metrics are defined."""
    return numerator / np.where(denominator > 0, denominator, 1)


def _accuracy(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, tn: np.ndarray) -> np.ndarray:
    return _ratio(tp + tn, tp + fp + fn + tn)


def _f1(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, tn: np.ndarray) -> np.ndarray:
    return _ratio(2 * tp, 2 * tp + fp + fn)


def _matthews_correlation(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, tn: np.ndarray) -> np.ndarray:
    # In floating point: the product of four counts overflows an integer.
    tp, fp, fn, tn = (count.astype(np.float64) for count in (tp, fp, fn, tn))
    return _ratio(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))


# Scores from true positives, false positives, false negatives and true negatives, by the names of the table of tasks.
_SCORES: dict[str, Callable[..., np.ndarray]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "f1_answers": _f1,
    "matthews_correlation": _matthews_correlation,
}
