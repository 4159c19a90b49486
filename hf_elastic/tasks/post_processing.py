"""What is done to a model's logits before they are answers, fitted on rows that are held out of the training split.

What is distinctive: logits come in and logits go out, so that answers, ensembles and files are made as ever.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .decision_thresholds import fit_threshold, threshold_metrics
from .predictions import Predictions
from .probability_calibration import fit_temperature
from .task import Task


@dataclass(frozen=True)
class PostProcessing:
    """Calibration, a decision threshold, and the range of a regression. The defaults do nothing.

    Args:
        temperature: What the logits are divided by.
        threshold: Probability of label 1 above which it is the answer, of a task with two labels. Default: one half.
        label_range: Smallest and largest value of a regression.

    Raises:
        ValueError: If a value is out of its range.

    Example:
        >>> post_processing = PostProcessing.fit(find_task("glue", "cola"), held_out_logits, held_out_labels)
        >>> post_processing.apply(logits).argmax(-1)
    """

    temperature: float = 1.0
    threshold: float | None = None
    label_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} has to be above 0.")
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise ValueError(f"threshold={self.threshold} has to be between 0 and 1: it is a probability.")
        if self.label_range is not None and not self.label_range[0] < self.label_range[1]:
            raise ValueError(f"label_range={self.label_range} has to be the smallest label, then the largest.")

    @classmethod
    def fit(cls, task: Task, logits: np.ndarray, labels: np.ndarray) -> "PostProcessing":
        """Fits what suits a task.

        Args:
            task: The task. The range of a regression is its own.
            logits: Of rows that are held out of the training split. On the split that is reported, the scores would
                be too good.
            labels: Labels of the examples; of entities, whether each is right.

        Shape:
            logits: `[examples, num_labels]`.
            labels: `[examples]`.

        Raises:
            ImportError: Without scipy.
            ValueError: If there are no rows, not as many labels as rows, or other labels than the task's.
        """
        if task.label_range is not None:
            return cls(label_range=task.label_range)
        logits, labels = np.asarray(logits, dtype=np.float64), np.asarray(labels)
        if not len(logits) or len(logits) != len(labels):
            raise ValueError(
                f"{len(logits)} rows of logits and {len(labels)} labels: give held-out rows, each with a label."
            )
        ids = range(len(task.label_names))
        if not np.isin(labels, ids).all():
            raise ValueError(
                f"Labels {sorted(set(labels.tolist()) - set(ids))} are none of the {len(ids)} label ids of "
                f"{task.name}: fit on held-out rows of the training split, whose labels are known."
            )
        temperature = fit_temperature(logits, labels)
        metrics = threshold_metrics(task)
        threshold = fit_threshold(logits / temperature, labels, metrics) if metrics else None
        return cls(temperature, threshold)

    def apply(self, logits: np.ndarray) -> np.ndarray:
        """Gives logits whose largest is the answer.

        After a threshold other than one half, their softmax is no probability any more.

        Args:
            logits: Of the model.

        Shape:
            logits: `[examples, num_labels]`.

        Raises:
            ValueError: If there is a threshold, and not two labels.
        """
        logits = np.asarray(logits, dtype=np.float64)
        if self.label_range is not None:
            return logits.clip(*self.label_range)
        logits = logits / self.temperature
        if self.threshold is None:
            return logits
        if logits.shape[-1] != 2:
            raise ValueError(f"threshold={self.threshold} needs two labels, but the logits are of {logits.shape[-1]}.")
        return logits - [0.0, math.log(self.threshold) - math.log1p(-self.threshold)]

    def applied(self, predictions: Predictions) -> Predictions:
        """Gives predictions after [`~PostProcessing.apply`]."""
        return dataclasses.replace(predictions, logits=self.apply(predictions.logits))

    def to_json(self) -> str:
        """The values as JSON text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "PostProcessing":
        """Reads what `to_json` gave."""
        values: dict[str, Any] = json.loads(text)
        if values["label_range"] is not None:
            values["label_range"] = tuple(values["label_range"])
        return cls(**values)
