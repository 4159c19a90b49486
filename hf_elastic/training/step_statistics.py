"""Callbacks that learn from each step of a training what the next ones go by."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState


class StepStatistics(TrainerCallback, ExportableState):
    """A callback that takes in each step, before it is known whether the step counts.

    A training that is not resumed begins with a fresh state.
    """

    def forget_step(self) -> None:
        """Forgets the present step, as if it had not been: [`LossGuard`] calls it for a step that is left out."""
        raise NotImplementedError

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step == 0:
            self.__init__()
