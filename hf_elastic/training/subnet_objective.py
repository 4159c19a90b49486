"""The loss of one subnet in a training step: of the task and of what it learns from others, with their weights."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..modeling.subnet_elastic import SubnetConfig
from .arguments import ElasticTrainingArguments
from .detachment import is_detached
from .distillation import Batch, Observation, UnitCounts
from .distiller import Distiller
from .shorter_inputs import shorten
from .subnet_weights import SUBNET_WEIGHTINGS


class SubnetLoss(NamedTuple):
    """A subnet's loss, and the parts of it by kind; no parts where it learns from the task alone."""

    total: Tensor
    parts: dict[str, Tensor]


class SubnetObjective:
    """Weighs the losses of the subnets as the arguments say, at every point of the training.

    Args:
        args: The weights and their schedules.
        largest_first: Names of the subnets that are trained.
        distiller: What the subnets learn from.
        scale: Factor of the losses against others, such as the number of processes: the parent multiplies the task's
            loss by it where the processes' gradients are averaged, but their losses are parts of a sum.

    Attributes:
        counts (`dict[int | None, UnitCounts]`): Units of the present accumulated batch, by the number of tokens that
            inputs are cut to; None stands for whole ones.
        running_losses (`Mapping[str, float]`): Running means of the subnets' losses, as far as they are known.
    """

    def __init__(
        self,
        args: ElasticTrainingArguments,
        largest_first: Sequence[str],
        distiller: Distiller,
        scale: float = 1.0,
    ) -> None:
        self.args, self.largest_first, self.distiller, self.scale = args, list(largest_first), distiller, scale
        self.running_losses: Mapping[str, float] = {}
        self.counts: dict[int | None, UnitCounts] = {}

    def count(
        self, batches: Sequence[Batch], device: torch.device, reduce: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        """Counts the units of an accumulated batch, for every length that inputs are cut to.

        Args:
            batches: Its micro-batches.
            device: Where the counts are needed.
            reduce: Gives the sum of all processes, if their losses are parts of one.
        """
        lengths = list(dict.fromkeys([None, *self.args.subnet_max_lengths.values()]))
        of_part = partial(UnitCounts.of, problem_type=self.distiller.problem_type)
        counts = [[torch.stack(of_part(shorten(batch, length))) for length in lengths] for batch in batches]
        sums = torch.stack([torch.stack(of_batch) for of_batch in counts]).sum(dim=0).to(device)
        sums = sums if reduce is None else reduce(sums)
        self.counts = {length: UnitCounts(*units) for length, units in zip(lengths, sums, strict=True)}

    def inputs_of(self, name: str, batch: Batch) -> Batch:
        """Gives what a subnet reads of a batch."""
        return shorten(batch, self.args.subnet_max_lengths.get(name))

    def __call__(
        self,
        name: str,
        subnet: SubnetConfig,
        task: Tensor,
        student: Observation,
        batch: Batch,
        step: int,
        progress: float,
    ) -> SubnetLoss:
        """Gives the loss of a subnet.

        Args:
            name: Its name.
            subnet: The size that ran, which may have fewer layers than the named one.
            task: The loss against the labels.
            student: What it makes of the batch.
            batch: Its inputs.
            step: Number of the optimizer step.
            progress: Share of the training that is done, in [0, 1].
        """
        losses, weights = {"task": task}, {"task": 1.0}
        if self.distiller.sources and not self._is_detached(name, step):
            weights = self.args.loss_weights_at(progress)
            counts = self.counts[self.args.subnet_max_lengths.get(name)]
            kinds = [kind for kind, weight in weights.items() if weight > 0]
            temperature = self.args.temperature_at(progress)
            of_others = self.distiller.losses(kinds, subnet, student, batch, counts, temperature)
            losses |= {kind: self.scale * loss for kind, loss in of_others.items()}
        total = self._weight(name, progress) * sum(weights[kind] * loss for kind, loss in losses.items())
        return SubnetLoss(total, losses if self.distiller.sources else {})

    def _is_detached(self, name: str, step: int) -> bool:
        args = self.args
        return is_detached(name, step, args.detachment_probability, args.detachment_interval, args.seed)

    def _weight(self, name: str, progress: float) -> float:
        weights = SUBNET_WEIGHTINGS[self.args.subnet_weighting](self.largest_first, progress, self.running_losses)
        return self.args.subnet_weights.get(name, 1.0) * weights[name]
