"""How many rows of a batch run at once: as many as the memory is good for."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from .memory import peak_memory, reset_peak_memory
from .processes import max_over_processes
from .resource_callback import ResourceCallback

logger = logging.get_logger(__name__)

PATIENCE = 3
RATE = 0.2


@dataclass
class MicroBatchSize:
    """The rule by which the size of micro-batches follows the memory in use.

    After three steps in a row under the threshold it grows by 20%, above it shrinks by 20%, by one row at least. A
    size that ran out of memory is halved, and neither it nor a larger one is tried again.

    Args:
        size: Rows that run at once.
        failed: The smallest size that ran out of memory so far.
        steps_below: How many steps in a row were under the threshold since the last change.

    Example:
        >>> rule = MicroBatchSize(size=10)
        >>> [rule.observe(share, threshold=0.8, most=16) for share in (0.5, 0.5, 0.5, 0.9)]
        [10, 10, 12, 10]
    """

    size: int
    failed: int | None = None
    steps_below: int = 0

    def observe(self, share: float, threshold: float, most: int) -> int:
        """Takes in what a step needed.

        Args:
            share: Share of the memory.
            threshold: The share that is aimed at.
            most: Rows of a batch, which the size never exceeds.

        Returns:
            The size of the next step.
        """
        self.steps_below = self.steps_below + 1 if share < threshold else 0
        change = max(1, int(self.size * RATE))
        if share > threshold:
            self.size = max(self.size - change, 1)
        elif self.steps_below == PATIENCE:
            self.steps_below = 0
            self.size = min(self.size + change, most if self.failed is None else min(most, self.failed - 1))
        return self.size

    def run_out(self, size: int) -> int:
        """Takes in that a step ran out of memory.

        Args:
            size: The size it ran with.

        Returns:
            The size to repeat it with.

        Raises:
            torch.OutOfMemoryError: If it was a single row.
        """
        if size == 1:
            raise torch.OutOfMemoryError(
                "A step ran out of memory with micro_batch_size=1, which can shrink no further. Truncate the inputs "
                "(max_length of the tokenizer), set activation_checkpointing=True or bf16=True, or train a smaller "
                "model."
            )
        self.failed = size if self.failed is None else min(size, self.failed)
        self.size, self.steps_below = size // 2, 0
        return self.size


class AdaptMicroBatchSize(ResourceCallback):
    """Adapts how many rows of a batch run at once; the batch, its gradients and the schedule stay as they are.

    Reads `micro_batch_size` (where it begins, all rows by default) and `memory_threshold` from the training arguments.
    The process with the least memory left decides for all. A resumed training goes on with the size that it had come
    to, unless it is given another `micro_batch_size` than before: then it begins there, and forgets what failed.

    Args:
        size (`int`, *optional*):
            Where to go on, as the other arguments those of [`MicroBatchSize`]. A checkpoint has them.
        failed (`int`, *optional*):
            Likewise.
        steps_below (`int`, defaults to 0):
            Likewise.
        begun_at (`int`, *optional*):
            The `micro_batch_size` that it began with, likewise.

    Attributes:
        rule ([`MicroBatchSize`]): Its `size` is what the next step runs at once.
    """

    def __init__(
        self,
        size: int | None = None,
        failed: int | None = None,
        steps_below: int = 0,
        begun_at: int | None = None,
    ) -> None:
        self.rule = MicroBatchSize(size or 0, failed, steps_below)
        self.begun_at = begun_at
        self._examples = 0

    def state(self) -> dict[str, Any]:
        return {"args": {**asdict(self.rule), "begun_at": self.begun_at}, "attributes": {}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        given = args.micro_batch_size
        if not self.rule.size or given not in (None, self.begun_at):
            self.rule, self.begun_at = MicroBatchSize(given or args.train_batch_size), given

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        reset_peak_memory(args.device)

    def on_examples(self, examples: int, passes: float) -> None:
        self._examples = examples

    def most_rows(self, args: TrainingArguments) -> int:
        """Rows of the largest batch that there may be."""
        return args.train_batch_size

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        most = self.most_rows(args)
        before = self.rule.size = min(self.rule.size, most)  # a resumed training may have smaller batches
        if self._examples < before * args.world_size:
            return  # such as the last batch of an epoch, which says nothing about a full one
        share = max_over_processes(peak_memory(args.device).share, args.device)
        after = self.rule.observe(share, args.memory_threshold, most)
        if after != before:
            logger.info(
                f"Step {state.global_step} needed {share:.0%} of the memory: micro_batch_size {before} to {after}."
            )

    def logs(self) -> dict[str, float]:
        return {"micro_batch_size": self.rule.size}
