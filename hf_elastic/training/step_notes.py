"""What the passes of a batch leave to be told, once all of them have run."""

from torch import Tensor
from transformers import Trainer

from .callbacks import find_callback, find_callbacks
from .loss_guard import LossGuard
from .loss_log import LossLog
from .resource_callback import ResourceCallback
from .subnet_weights import RunningLosses


class StepNotes:
    """Losses of the subnets of a batch, which count only when the whole batch has run.

    Attributes:
        log ([`LossLog`]): The losses of the batches that have.
    """

    def __init__(self) -> None:
        self.log = LossLog()
        self._passes: list[tuple[str, dict[str, Tensor], Tensor]] = []

    def add(self, name: str, losses: dict[str, Tensor], task: Tensor) -> None:
        """Notes a pass.

        Args:
            name: The subnet that ran.
            losses: Its losses by kind, with the weighted sum of them as `"loss"`.
            task: Its loss against the labels.
        """
        self._passes.append((name, {kind: loss.detach() for kind, loss in losses.items()}, task.detach()))

    def forget_batch(self) -> None:
        """Forgets the passes of a batch that is to run again."""
        self._passes.clear()

    def tell(self, trainer: Trainer, loss: Tensor) -> None:
        """Keeps the losses of a batch for the log, and tells the callbacks what has run.

        Args:
            trainer: The trainer, with its sampler and objective.
            loss: The sum of all losses of the batch.
        """
        names, step = {name for name, *_ in self._passes}, trainer.state.global_step
        if (guard := find_callback(trainer, LossGuard)) is not None:
            guard.add_loss(loss / len(names))
        running = find_callback(trainer, RunningLosses)
        for name, losses, task in self._passes:
            if running is not None:
                running.add(name, task)
            for kind, value in losses.items():
                # Not `loss_<name>_<kind>`, which is `loss_<name>` of a subnet called "small_task".
                self.log.add(f"{kind}_{name}", step, value)
        if trainer.accelerator.sync_gradients:
            self._tell_resources(trainer, names)
        self._passes.clear()

    def _tell_resources(self, trainer: Trainer, names: set[str]) -> None:
        sizes, args = trainer.sampler.sizes, trainer.args
        examples = int(trainer.objective.counts[None].examples)
        examples *= 1 if args.average_tokens_across_devices else args.world_size
        passes = sum(sizes[name] for name in names) / sizes[trainer.full_name]
        for callback in find_callbacks(trainer, ResourceCallback):
            callback.on_examples(examples, passes)
