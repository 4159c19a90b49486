"""Probabilities that are as high as the model is often right."""

import numpy as np

# Beyond these, probabilities are as good as certain or as good as equal, whatever the logits.
_TEMPERATURES = (0.05, 20.0)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities.

    Args:
        logits: Of the classes.

    Shape:
        logits: `[..., num_labels]`.
    """
    logits = np.asarray(logits, dtype=np.float64)
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Gives the number to divide the logits by for the best likelihood of the labels. It changes no decision.

    Args:
        logits: Of rows that the model has not learned from.
        labels: Their label ids.

    Shape:
        logits: `[rows, num_labels]`.
        labels: `[rows]`.

    Returns:
        A temperature between 0.05 and 20. Above 1 the model was too sure of itself.

    Raises:
        ImportError: Without scipy.

    References:
        Guo et al. 2017, On Calibration of Modern Neural Networks, https://arxiv.org/abs/1706.04599
    """
    try:
        from scipy.optimize import minimize_scalar
    except ImportError as error:
        raise ImportError('Calibration needs scipy: pip install "hf_elastic[data]"') from error
    logits, labels = np.asarray(logits, dtype=np.float64), np.asarray(labels)

    def negative_log_likelihood(log_temperature: float) -> float:
        log_probabilities = log_softmax(logits / np.exp(log_temperature))
        return -log_probabilities[np.arange(len(labels)), labels].mean()

    # The loss is convex in the inverse of the temperature, so that it has one valley over its logarithm too.
    found = minimize_scalar(negative_log_likelihood, bounds=np.log(_TEMPERATURES), method="bounded")
    return float(np.exp(found.x))
