"""How much the loss of each subnet counts, beside the weights that are given by hand."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from accelerate.utils import reduce
from torch import Tensor
from transformers import TrainerControl, TrainerState, TrainingArguments

from .step_statistics import StepStatistics

# Share of the running mean of losses that a step leaves.
MEMORY = 0.98


def uniform(largest_first: list[str], progress: float, losses: Mapping[str, float]) -> dict[str, float]:
    """All alike."""
    return dict.fromkeys(largest_first, 1.0)


def toward_largest(largest_first: list[str], progress: float, losses: Mapping[str, float]) -> dict[str, float]:
    """From all alike to the ratio of their ranks, such as 3 : 2 : 1, with a mean of 1.

    Small subnets learn early; later their gradients cost the largest one more than they gain.
    """
    number = len(largest_first)
    ends = {name: 2 * (number - rank) / (number + 1) for rank, name in enumerate(largest_first)}
    return {name: 1 + (end - 1) * progress for name, end in ends.items()}


def by_loss(largest_first: list[str], progress: float, losses: Mapping[str, float]) -> dict[str, float]:
    """The ratio of a subnet's loss to the mean of all, as far as they are known."""
    known = [losses[name] for name in largest_first if name in losses]
    mean = sum(known) / len(known) if known else 0.0
    return {name: losses[name] / mean if mean > 0 and name in losses else 1.0 for name in largest_first}


# Takes the names (largest first), the share of the training that is done, and running means of the task's losses.
SUBNET_WEIGHTINGS: dict[str, Callable[[list[str], float, Mapping[str, float]], dict[str, float]]] = {
    "uniform": uniform,
    "toward_largest": toward_largest,
    "by_loss": by_loss,
}


class RunningLosses(StepStatistics):
    """Running means of the subnets' losses over the steps that ran them: the same in every process.

    A loss that is not finite does not count: no mean would ever recover from it. Nor does that of a step that is left
    out. The means are part of the trainer's state, so that a resumed training goes on with them.

    Args:
        means (`dict[str, float]`, *optional*):
            Means to go on with. A checkpoint has them.
    """

    def __init__(self, means: dict[str, float] | None = None) -> None:
        self.means = dict(means or {})
        self._step: dict[str, Tensor] = {}

    def add(self, name: str, loss: Tensor) -> None:
        """Adds the loss of a subnet on a part of a step's batch."""
        self._step[name] = self._step.get(name, 0) + loss.detach()

    def forget_step(self) -> None:
        self._step = {}

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._step = {}  # a training may have broken off within a step

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not self._step:
            return
        losses = reduce(torch.stack(list(self._step.values())), reduction="mean").tolist()
        known = {name: loss for name, loss in zip(self._step, losses, strict=True) if math.isfinite(loss)}
        for name, loss in known.items():
            self.means[name] = MEMORY * self.means.get(name, loss) + (1 - MEMORY) * loss
        self._step = {}

    def state(self) -> dict[str, Any]:
        return {"args": {"means": self.means}, "attributes": {}}
