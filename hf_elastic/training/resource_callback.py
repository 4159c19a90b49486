"""What the callbacks that adapt a training to its resources have in common."""

import time
from typing import Any, ClassVar

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.utils import logging

logger = logging.get_logger(__name__)


class ResourceCallback(TrainerCallback, ExportableState):
    """A callback whose state is saved with each checkpoint, and whose decisions are logged.

    Settings are read from the training arguments when they are needed and are no part of the state, so that a training
    may go on with others, such as a larger budget. A training that is not resumed begins with a fresh state.

    Attributes:
        saved (`tuple[str, ...]`): The attributes that make up the state; numbers and lists of numbers.
        ending (`str`, *optional*): Why it ended the training, if it did so before the last step.
    """

    saved: ClassVar[tuple[str, ...]] = ()
    ending: str | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as [`~transformers.trainer_callback.ExportableState`] has it."""
        return {"args": {}, "attributes": {name: getattr(self, name) for name in self.saved}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step == 0:
            self.__init__()
        self.ending = None

    def note_ending(self, reason: str, state: TrainerState) -> None:
        """Keeps and tells why the training ends before its last step."""
        self.ending = reason
        if state.is_world_process_zero:
            logger.warning(reason)

    def on_examples(self, examples: int, passes: float) -> None:
        """Called by the trainer when it has trained on a batch.

        Args:
            examples: Rows of the batch, over all processes.
            passes: What the subnets of the step cost per example, as a multiple of the full model.
        """

    def logs(self) -> dict[str, float]:
        """What the trainer adds to the logs of a step."""
        return {}


class TimedCallback(ResourceCallback):
    """A resource callback that knows how long the training has taken, evaluations included, interruptions not.

    Attributes:
        seconds (`float`): Time since the beginning of the training, when it was last read.
    """

    saved = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0
        self._read_at = time.monotonic()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        self._read_at = time.monotonic()

    def state(self) -> dict[str, Any]:
        self.read_clock()
        return super().state()

    def read_clock(self) -> float:
        """Gives the seconds up to now."""
        now = time.monotonic()
        self.seconds, self._read_at = self.seconds + now - self._read_at, now
        return self.seconds
