"""Whether a checkpoint numbers the labels as its task does. Many checkpoints of MNLI do not, and score 10%.

The names in the configuration tell it before anything is computed. Where these are not names, the predictions tell it:
another numbering of them would make bad scores good.
"""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .task import Task

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# How much more accurate another order has to be.
_CLEARLY = 0.1
_STANDARD_DEVIATIONS = 3


def check_label_order(task: Task, config: "PreTrainedConfig") -> None:
    """Compares the order of a checkpoint's label names with the task's.

    Case is ignored, and `-`, `_` and a space are alike. Names such as `LABEL_0` say nothing, and neither do those of
    other labels, which are another head's.

    Args:
        task: The task.
        config: Configuration of the checkpoint.

    Raises:
        ValueError: If the names are the task's, in another order. It shows both, and how to renumber the head.
    """
    names = [config.id2label[i] for i in sorted(config.id2label)]
    found, expected = [_plain(name) for name in names], [_plain(name) for name in task.label_names]
    if found == expected or sorted(found) != sorted(expected):
        return
    order = [found.index(name) for name in expected]
    raise ValueError(
        f"The checkpoint's labels are {', '.join(names)}, and those of {task.name} are {', '.join(task.label_names)}: "
        f"the same in another order. Put its head into the task's order, rows {order} of the last layer's weight and "
        "bias, and set id2label and label2id to the task's; or give the rows' labels the checkpoint's numbers."
    )


def suspect_label_order(labels: Sequence[int], predictions: Sequence[int], num_labels: int) -> tuple[int, ...] | None:
    """Says whether scores are as if the model numbered the labels in another way.

    That is so where another order of the numbers gives a clearly higher accuracy than the present one, and than the
    most frequent label alone, which is what chance can reach: by more than 0.1, and by more than three standard
    deviations, which matters where there are few rows. To look only at scores below chance would miss two of three
    labels that changed places: such a model scores one third however good it is.

    Args:
        labels: The right labels.
        predictions: What the model gave.
        num_labels: Number of labels.

    Returns:
        For each number that the model gives, the label that it seems to mean by it. None without such a suspicion.

    Raises:
        ImportError: If scipy is not installed.

    Example:
        >>> suspect_label_order([0, 1, 2] * 30, [2, 1, 0] * 29 + [0, 0, 0], num_labels=3)
        (2, 1, 0)
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError('Looking for the best order needs scipy: pip install "hf_elastic[data]"') from error
    counts = np.zeros((num_labels, num_labels), dtype=np.int64)
    np.add.at(counts, (np.asarray(predictions), np.asarray(labels)), 1)
    given, meant = linear_sum_assignment(counts, maximize=True)
    rows = counts.sum()
    present, chance = counts.trace() / rows, counts.sum(axis=0).max() / rows
    margin = max(_CLEARLY, _STANDARD_DEVIATIONS * math.sqrt(chance * (1 - chance) / rows))
    if counts[given, meant].sum() / rows <= max(present, chance) + margin:
        return None
    return tuple(int(label) for label in meant)


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "_", name.lower())
