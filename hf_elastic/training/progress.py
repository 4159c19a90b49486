"""Progress bars for trainings of many sizes, whose logs have too many numbers to be read as they scroll by."""

from typing import Any

from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback


class EvaluationProgress(ProgressCallback):
    """Shows one bar for an evaluation that goes over the data several times.

    Attributes:
        passes (`int`): Passes over the data that the next evaluation makes, one per size; the trainer sets it.
    """

    passes = 1

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        begins = self.prediction_bar is None
        super().on_prediction_step(args, state, control, **kwargs)
        if begins and self.prediction_bar is not None:
            self.prediction_bar.set_description("Evaluation")
            self.prediction_bar.total *= self.passes


class LossProgress(EvaluationProgress):
    """Shows the loss behind the bar, instead of writing every log above it.

    Args:
        title (`str`):
            What stands before the bar of a training.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_description(self.title)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if self.training_bar is not None and "loss" in (logs or {}):
            self.training_bar.set_postfix(loss=f"{logs['loss']:.3f}")


def show_loss_only(trainer: Trainer, title: str) -> None:
    """Replaces the progress bars of a trainer, if it shows any.

    Args:
        trainer (`Trainer`):
            The trainer.
        title (`str`):
            As [`LossProgress`] takes it.
    """
    if trainer.pop_callback(ProgressCallback) is not None:
        trainer.add_callback(LossProgress(title))
