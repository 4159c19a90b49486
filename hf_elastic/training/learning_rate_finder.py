"""A learning rate from a short trial: real training steps at growing rates, which leave no trace."""

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .arguments import ElasticTrainingArguments
from .callbacks import callbacks_for
from .progress import LossProgress
from .trials import make_trial, restored

# Width of the smoothing, in decades of the learning rate. It looks ahead as far as it looks back: a running average
# would fall later than the loss does, and suggest too large a rate.
_WIDTH = 0.25
# Mechanisms that end a training, watch it, or change what is kept of it, and not its steps.
_WITHOUT = {
    "on_bad_step": "ignore",
    "max_minutes": None,
    "max_examples": None,
    "early_stopping_min_gain": None,
    "weight_averaging": "none",
    "log_resources": False,
    "adapt_num_random_subnets": False,
    "keep_effective_batch": True,
}
# A smoothed loss that has grown this much over its lowest value does not come back.
_DIVERGENCE = 4.0


@dataclass(frozen=True)
class LearningRateCurve:
    """The loss of a training whose learning rate grows from step to step.

    Args:
        rates (`tuple[float, ...]`):
            Learning rate of each step.
        losses (`tuple[float, ...]`):
            Training loss of each step, before its update.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def smoothed(self) -> np.ndarray:
        """The losses averaged with those at neighbouring rates, by a Gaussian of a quarter of a decade."""
        decades = np.log10(self.rates)
        weights = np.exp(-0.5 * ((decades[:, None] - decades) / _WIDTH) ** 2)
        return weights @ np.array(self.losses) / weights.sum(axis=1)

    @property
    def suggestion(self) -> float:
        """The learning rate at which the smoothed loss falls most steeply, by the logarithm of the rate.

        It lies below the rate of the lowest loss, which is already too large to go on with.

        Raises:
            ValueError: If the smoothed loss never falls.
        """
        smoothed = self.smoothed
        slopes = np.diff(smoothed[: smoothed.argmin() + 1]) if len(smoothed) else smoothed
        if not len(slopes):
            raise ValueError(
                f"The loss never falls in {len(self.losses)} steps. Start at a smaller learning rate, or check that "
                "the labels can be learned."
            )
        return self.rates[int(slopes.argmin())]

    def save_picture(self, path: str | Path) -> None:
        """Draws the losses over the learning rates, as PNG.

        Args:
            path (`str` or `Path`):
                The file to write.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        try:
            # The object API: pyplot would change the process's backend and keep the figure alive.
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError('Drawing the curve needs `matplotlib`: pip install "hf_elastic[export]"') from None
        figure = Figure(figsize=(6.0, 3.8), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.plot(self.rates, self.losses, color="#9fb3c8", linewidth=1, label="loss")
        axes.plot(self.rates, self.smoothed, color="#1769aa", linewidth=2, label="smoothed")
        with suppress(ValueError):  # a curve without a suggestion is looked at all the more
            axes.axvline(self.suggestion, color="#1f2933", linestyle=":", label=f"suggestion: {self.suggestion:.1e}")
        axes.set_xscale("log")
        axes.set_xlabel("learning rate")
        axes.set_ylabel("training loss")
        axes.legend(frameon=False)
        figure.savefig(path, format="png", dpi=160, metadata={"Software": None})


def find_learning_rate(
    trainer: Trainer, start: float = 1e-7, end: float = 1.0, num_steps: int = 100
) -> LearningRateCurve:
    """Trains for a few steps while the learning rate grows exponentially, and takes everything back.

    The steps are the trainer's own: its batches, loss, clipping, and the optimizer that its arguments describe, with
    the learning rates of all parameter groups growing together. Mechanisms that are part of a step are part of these:
    a step that runs out of memory is repeated in smaller parts with `adapt_micro_batch_size`. Other callbacks do not
    run. It ends early when the loss is no number any more, or, smoothed, 4 times its lowest value. Weights, optimizer,
    state and random numbers of the trainer are as before afterwards, bit for bit. A data set that draws for itself has
    moved on.

    Args:
        trainer (`Trainer`):
            An [`ElasticTrainer`] or another trainer, before or after a training.
        start (`float`, defaults to 1e-7), end (`float`, defaults to 1.0):
            The first and the last learning rate.
        num_steps (`int`, defaults to 100):
            How many optimizer steps there are between them.

    Returns:
        [`LearningRateCurve`]: The losses, with a suggestion for `args.learning_rate`.

    Raises:
        ValueError: If the range is not positive and growing, there are fewer than 2 steps, or FSDP or DeepSpeed
            splits the weights.

    References:
        Smith 2017, Cyclical Learning Rates for Training Neural Networks, https://arxiv.org/abs/1506.01186

    Example:
        >>> curve = find_learning_rate(trainer)
        >>> curve.save_picture("learning_rate.png")
        >>> trainer.args.learning_rate = curve.suggestion
    """
    if not 0 < start < end < math.inf:
        raise ValueError(f"start={start} and end={end} are no range. Give positive rates, the smaller one first.")
    if num_steps < 2:
        raise ValueError(f"num_steps={num_steps} gives no curve. Give 2 or more, e.g. 100.")
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise ValueError(
            "The weights are split by FSDP or DeepSpeed, and the finder could not restore them. Find the learning "
            "rate in one process, or with DDP."
        )
    rates = [float(rate) for rate in np.geomspace(start, end, num_steps)]
    recorder = _LossRecorder(rates)
    with restored(trainer):
        _make_growing_trial(trainer, recorder).train()
    return recorder.curve


class _LossRecorder(TrainerCallback):
    """Collects the loss of each step, and stops a training that diverges."""

    def __init__(self, rates: list[float]) -> None:
        self.rates, self.losses = rates, []

    @property
    def curve(self) -> LearningRateCurve:
        return LearningRateCurve(tuple(self.rates[: len(self.losses)]), tuple(self.losses))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float],
        **kwargs: Any,
    ) -> None:
        if "loss" not in logs:
            return
        if math.isfinite(logs["loss"]):
            self.losses.append(logs["loss"])
            smoothed = self.curve.smoothed
            control.should_training_stop |= bool(smoothed[-1] > _DIVERGENCE * smoothed.min())
        else:
            control.should_training_stop = True


def _make_growing_trial(trainer: Trainer, recorder: _LossRecorder) -> Trainer:
    """A trial training whose learning rate is that of the recorder at each step."""
    callbacks = [recorder]
    if not trainer.args.disable_tqdm:
        callbacks.append(LossProgress("Learning rate finder"))
    # The rate is what the schedule multiplies.
    settings = {**_WITHOUT, "learning_rate": 1.0, "max_steps": len(recorder.rates)}
    trial = make_trial(trainer, settings, callbacks)
    for callback in callbacks_for(trial.args) if isinstance(trial.args, ElasticTrainingArguments) else ():
        trial.add_callback(callback)
    if trial.optimizer_cls_and_kwargs is not None:
        optimizer_cls, optimizer_kwargs = trial.optimizer_cls_and_kwargs
        trial.optimizer_cls_and_kwargs = optimizer_cls, {**optimizer_kwargs, "lr": 1.0}
    after_last = [*recorder.rates, recorder.rates[-1]]  # the schedule takes a step after the last update, too
    trial.lr_scheduler = LambdaLR(trial.create_optimizer(), after_last.__getitem__)
    return trial
