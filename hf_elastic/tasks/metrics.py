"""Scores of a sequence-classification head, for each kind of problem it can be trained on."""

from typing import TYPE_CHECKING

import numpy as np

from .labels import MULTI_LABEL, REGRESSION, SINGLE_LABEL

if TYPE_CHECKING:
    from transformers import EvalPrediction


def compute_metrics(prediction: "EvalPrediction", problem_type: str = SINGLE_LABEL) -> dict[str, float]:
    """Scores predictions, with scikit-learn and scipy.

    Args:
        prediction: Logits `[rows, num_labels]` (or a tuple that starts with them) and label ids.
        problem_type: Kind of problem.

    Returns:
        `accuracy` and `f1_macro` for one label per row; `accuracy` (whole label set right), `f1_micro` and `f1_macro`
        for several; `pearson`, `spearman` and `mse` for regression, where a constant prediction correlates with 0.
    """
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    logits, labels = np.asarray(logits, dtype=np.float64), np.asarray(prediction.label_ids)
    if problem_type == REGRESSION:
        return _regression_metrics(logits.reshape(-1), labels.reshape(-1).astype(np.float64))
    try:
        from sklearn.metrics import accuracy_score, f1_score
    except ImportError as error:
        raise ImportError('Metrics need scikit-learn: pip install "hf_elastic[data]"') from error
    if problem_type == MULTI_LABEL:
        predicted, labels = (logits > 0).astype(int), labels.astype(int)
        averages = ("micro", "macro")
    else:
        predicted = logits.argmax(-1)
        averages = ("macro",)
    scores = {f"f1_{average}": f1_score(labels, predicted, average=average, zero_division=0) for average in averages}
    return {"accuracy": float(accuracy_score(labels, predicted)), **{k: float(v) for k, v in scores.items()}}


def _regression_metrics(predicted: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    try:
        from scipy.stats import pearsonr, spearmanr
    except ImportError as error:
        raise ImportError('Metrics need scipy: pip install "hf_elastic[data]"') from error
    varies = len(labels) > 1 and np.ptp(predicted) > 0 and np.ptp(labels) > 0
    return {
        "pearson": float(pearsonr(predicted, labels).statistic) if varies else 0.0,
        "spearman": float(spearmanr(predicted, labels).statistic) if varies else 0.0,
        "mse": float(np.mean((predicted - labels) ** 2)),
    }
