"""Means of many small losses between two logs, without waiting for the device at every step."""

from collections import defaultdict

from torch import Tensor


class LossLog:
    """Collects losses by name and step.

    What the micro-batches of a step add under a name are parts of one loss; the mean is over the steps that have it,
    since not every step runs every subnet.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._steps: dict[str, set[int]] = defaultdict(set)

    def add(self, name: str, step: int, loss: Tensor) -> None:
        """Adds the loss of one micro-batch."""
        loss = loss.detach().mean()
        self._sums[name] = self._sums[name] + loss if name in self._sums else loss
        self._steps[name].add(step)

    def pop_means(self) -> dict[str, Tensor]:
        """The mean of each loss since the last call, as scalars on the device."""
        means = {name: total / len(self._steps[name]) for name, total in self._sums.items()}
        self.__init__()
        return means
