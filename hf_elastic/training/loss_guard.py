"""Keeps steps with a bad loss or bad gradients from the weights."""

import math
from pathlib import Path
from statistics import median
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging

from .complete_checkpoints import find_damage
from .rollback import roll_back
from .step_statistics import StepStatistics

logger = logging.get_logger(__name__)

_REMEDIES = (
    "Try a lower learning rate, more warm-up steps, a lower max_grad_norm, or bf16 in place of fp16, and look at the "
    "examples of that batch for labels or values that are not finite."
)


class DivergenceError(RuntimeError):
    """A training met a loss or gradients that it cannot go on with. The message says what was seen and what to try."""


class LossGuard(TrainerCallback, ExportableState):
    """Judges each step between its backward passes and its optimizer step, as [`StabilityArguments`] say.

    A step is bad if its loss or its gradient norm is not finite, or if the loss is more than `spike_factor` times the
    median of the last `spike_window` good steps. Gradients that a gradient scaler (fp16) found not to be finite while
    the loss is finite are none of its business: the scaler skips that step and lowers its scale.

    A bad step is taken back by dropping its gradients, so that the optimizer changes neither weights nor moments, and
    no [`StepStatistics`] remember it. With `"rollback"`, weights and optimizer are also restored from the last
    checkpoint that this training wrote; for further bad steps in a row from the one before, since the last one may
    have been written too late. Before the first checkpoint the step is only left out.

    The loss is averaged over the processes, hence all of them decide alike. It costs one read of two numbers from the
    device per step, which [`~transformers.Trainer`] waits for anyway unless `logging_nan_inf_filter` is False, and
    with several processes one reduction of them.

    Attributes:
        bad_steps (`int`): How many steps were bad since the training began.
        bad_steps_in_a_row (`int`): How many of them were the last steps.
        recent_losses (`list[float]`): Losses that the next one is compared with.
        saved_steps (`list[int]`): Steps at which this training wrote a checkpoint, without those after a bad step.

    References:
        Chowdhery et al. 2022, PaLM, section 5.1, https://arxiv.org/abs/2204.02311

    Example:
        In a trainer that has it among its callbacks:

        >>> def _get_grad_norm(self, model, grad_norm=None):
        ...     norm = super()._get_grad_norm(model, grad_norm)
        ...     find_callback(self, LossGuard).check_step(self, norm)
        ...     return norm
    """

    def __init__(self) -> None:
        self.bad_steps = 0
        self.bad_steps_in_a_row = 0
        self.recent_losses: list[float] = []
        self.saved_steps: list[int] = []
        self._loss: Tensor | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it; the settings are those of the training that goes on."""
        names = ("bad_steps", "bad_steps_in_a_row", "recent_losses", "saved_steps")
        return {"args": {}, "attributes": {name: getattr(self, name) for name in names}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # The trainer restores callbacks only if told to, and saves only those that the state knows.
        self.__init__()
        if state.global_step:
            saved = state.stateful_callbacks.get(type(self).__name__, self.state())
            vars(self).update(saved["attributes"])
            self.saved_steps = [*self.saved_steps, state.global_step]
        state.stateful_callbacks[type(self).__name__] = self.state()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._loss = None

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if not self.bad_steps_in_a_row:  # otherwise it holds the weights that were just gone back to
            self.saved_steps = [*self.saved_steps, state.global_step]

    def add_loss(self, loss: Tensor) -> None:
        """Adds the loss of one micro-batch, a part of the loss of the step.

        Args:
            loss: Of as many subnets as every other step has, e.g. the mean over those that ran.

        Shape:
            loss: `[]`.
        """
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()

    def check_step(self, trainer: Trainer, gradient_norm: Tensor | float | None) -> None:
        """Judges the step whose gradients are complete, and drops them if it is bad.

        Args:
            trainer: The trainer, with [`StabilityArguments`] among its arguments.
            gradient_norm: The norm over all processes, before any clipping.

        Raises:
            DivergenceError: If the step is bad and the training has to stop.
        """
        args = trainer.args
        loss, norm = self._read(trainer, gradient_norm)
        fault = self._find_fault(trainer, loss, norm)
        if fault is None:
            self.bad_steps_in_a_row = 0
            if args.spike_factor:
                self.recent_losses = [*self.recent_losses, loss][-args.spike_window :]
            return
        self.bad_steps += 1
        self.bad_steps_in_a_row += 1
        seen = f"Step {trainer.state.global_step + 1} is bad: {fault}."
        if args.on_bad_step == "stop":
            raise DivergenceError(
                f"{seen} The training stops before the weights change (on_bad_step='stop'). {_REMEDIES} "
                "on_bad_step='skip' leaves single batches out."
            )
        if self.bad_steps_in_a_row > args.max_bad_steps:
            raise DivergenceError(
                f"{seen} So were the {args.max_bad_steps} steps before, as many as max_bad_steps allows. {_REMEDIES}"
            )
        trainer.optimizer.zero_grad(set_to_none=True)  # it may train more than the model
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, StepStatistics):
                callback.forget_step()
        checkpoint = self._choose_checkpoint(trainer) if args.on_bad_step == "rollback" else None
        if checkpoint is not None:
            roll_back(trainer, checkpoint)
        action = "leaves it out" if checkpoint is None else f"goes back to the weights of {checkpoint}"
        logger.warning(f"{seen} The training {action}, and goes on with the next batch.")
        trainer.log({"bad_steps": self.bad_steps})

    def _read(self, trainer: Trainer, gradient_norm: Tensor | float | None) -> tuple[float, float]:
        if hasattr(gradient_norm, "full_tensor"):  # sharded
            gradient_norm = gradient_norm.full_tensor()
        norm = torch.as_tensor(0.0 if gradient_norm is None else gradient_norm)
        values = torch.stack([self._loss.float(), norm.to(self._loss.device, torch.float32)])
        loss, norm = trainer.accelerator.reduce(values, reduction="mean").tolist()
        return loss, norm

    def _find_fault(self, trainer: Trainer, loss: float, norm: float) -> str | None:
        factor, window = trainer.args.spike_factor, trainer.args.spike_window
        recent = self.recent_losses[-window:]  # a resumed training may have a shorter window
        if not math.isfinite(loss):
            return f"its loss is {loss}"
        if not math.isfinite(norm) and trainer.accelerator.scaler is None:
            return f"its gradient norm is {norm}, with the loss {loss:.4g}"
        if factor and len(recent) == window and loss > factor * median(recent):
            return (
                f"its loss {loss:.4g}, the mean over its sizes, is more than {factor:g} times the median of the last "
                f"{window} good steps, {median(recent):.4g}"
            )
        return None

    def _choose_checkpoint(self, trainer: Trainer) -> Path | None:
        """One checkpoint further back for each bad step in a row, in every process what the first one found."""
        chosen = [None]
        if trainer.accelerator.is_main_process:
            folders = [Path(trainer.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{step}") for step in self.saved_steps]
            whole = [folder for folder in folders if find_damage(folder) is None]
            chosen = [whole[-min(self.bad_steps_in_a_row, len(whole))] if whole else None]
        if trainer.accelerator.num_processes > 1:
            broadcast_object_list(chosen)
        return chosen[0]
