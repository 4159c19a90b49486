"""Progress bars for trainings of many sizes, whose logs have too many numbers to be read as they scroll by."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback
from transformers.trainer_utils import has_length
from transformers.utils import logging


class EvaluationProgress(ProgressCallback):
    """Shows one bar for an evaluation that goes over the data several times.

    Attributes:
        passes (`int`): Passes over the data that the next evaluation makes, one per size; the trainer sets it.
    """

    passes = 1

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        eval_dataloader: DataLoader | None = None,
        **kwargs: Any,
    ) -> None:
        if self.prediction_bar is not None:
            self.prediction_bar.update()
        elif state.is_world_process_zero and has_length(eval_dataloader):
            # It begins after the first step, which therefore has no part in the speed that it shows.
            total, leaves = len(eval_dataloader) * self.passes, self.training_bar is None
            self.prediction_bar = tqdm(total=total, initial=1, desc="Evaluation", leave=leaves, dynamic_ncols=True)


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
        # Not the parent's bar, which shows itself before it can be given a title.
        self.current_step = state.global_step
        if state.is_world_process_zero:
            steps = {"total": state.max_steps, "initial": state.global_step}
            self.training_bar = tqdm(**steps, desc=self.title, dynamic_ncols=True)

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


@contextmanager
def without_inner_bars() -> Iterator[None]:
    """Keeps the library's bars of loading and saving from breaking up one that goes on around them."""
    were_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_shown:
            logging.enable_progress_bar()
