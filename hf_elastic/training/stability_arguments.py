"""Training arguments that say what becomes of bad steps, and how closely a training is watched."""

import os
from dataclasses import dataclass, field

from transformers.utils import strtobool

from .argument_checks import check_choice, check_number, check_whole_number

BAD_STEP_POLICIES = ("ignore", "stop", "skip", "rollback")


@dataclass(repr=False)
class StabilityArguments:
    """What becomes of a bad step, that is one whose loss or gradients are not finite, or whose loss is a spike.

    The default stops the training with an error before such a step reaches the weights: nobody wants to go on with
    weights that are not numbers, and the last checkpoint is good. Spikes are not looked for by default, because the
    loss of a fine-tuning gets close to 0, where any difficult batch has many times the median.

    Args:
        on_bad_step (`str`, defaults to `"stop"`):
            `"ignore"` looks for nothing, as [`~transformers.Trainer`] does. `"stop"` raises [`DivergenceError`].
            `"skip"` leaves the step out: no weight changes, and data and learning rate go on. `"rollback"` also
            restores weights and optimizer from the last checkpoint of this training, as PaLM's training did by hand.
        spike_factor (`float`, defaults to 0):
            A loss is a spike above so many times the median of the last ones, e.g. 3.0. 0 looks for none.
        spike_window (`int`, defaults to 50):
            How many good steps the median is over; there are no spikes before it has so many.
        max_bad_steps (`int`, defaults to 10):
            How many bad steps in a row are skipped or rolled back. One more stops the training.
        statistics_steps (`int`, defaults to 0):
            Every so many steps, update-to-weight ratios, gradient norms and activations of each layer are logged. 0
            logs none.

    References:
        Chowdhery et al. 2022, PaLM: Scaling Language Modeling with Pathways, section 5.1,
        https://arxiv.org/abs/2204.02311
    """

    on_bad_step: str = field(
        default="stop",
        metadata={"help": f"What becomes of a step with a bad loss or gradient: {', '.join(BAD_STEP_POLICIES)}."},
    )
    spike_factor: float = field(
        default=0.0,
        metadata={"help": "A loss above so many times the median of the last ones is bad; 0 looks for no spikes."},
    )
    spike_window: int = field(default=50, metadata={"help": "How many good steps the median is over."})
    max_bad_steps: int = field(
        default=10, metadata={"help": "How many bad steps in a row are skipped or rolled back; one more stops."}
    )
    statistics_steps: int = field(
        default=0,
        metadata={"help": "Steps between two logs of update ratios, gradients and activations by layer; 0 is never."},
    )

    def check_stability(self) -> None:
        """Checks these arguments, and those of the parent that they depend on.

        Raises:
            TypeError: If a value has another type.
            ValueError: If a value is out of range, or two do not go together.
        """
        check_choice("on_bad_step", self.on_bad_step, BAD_STEP_POLICIES)
        check_number("spike_factor", self.spike_factor)
        if self.spike_factor != 0 and self.spike_factor <= 1:
            raise ValueError(
                f"spike_factor={self.spike_factor} would call ordinary losses spikes. Give more than 1, e.g. 3.0, or "
                "0 to look for none."
            )
        if self.spike_factor and self.on_bad_step == "ignore":
            raise ValueError(
                f"spike_factor={self.spike_factor} looks for spikes, which on_bad_step='ignore' does not. Choose "
                "another policy, or spike_factor=0."
            )
        for name, least in (("spike_window", 2), ("max_bad_steps", 1), ("statistics_steps", 0)):
            check_whole_number(name, getattr(self, name), least)
        self._check_rollback()
        self._check_deepspeed()

    def _check_rollback(self) -> None:
        if self.on_bad_step != "rollback":
            return
        if self.save_strategy == "no":
            raise ValueError(
                "on_bad_step='rollback' needs checkpoints, and save_strategy='no' writes none. Use "
                "save_strategy='steps', or on_bad_step='skip'."
            )
        if self.save_only_model:
            raise ValueError(
                "on_bad_step='rollback' restores the optimizer, which save_only_model=True leaves out of the "
                "checkpoints. Use save_only_model=False, or on_bad_step='skip'."
            )

    def _check_deepspeed(self) -> None:
        if not (self.deepspeed or strtobool(os.environ.get("ACCELERATE_USE_DEEPSPEED", "false"))):
            return
        if self.on_bad_step in ("skip", "rollback"):
            raise ValueError(
                f"on_bad_step={self.on_bad_step!r} does not work with DeepSpeed, which changes the weights before a "
                "step can be judged. Use 'stop'."
            )
        if self.statistics_steps:
            raise ValueError(
                f"statistics_steps={self.statistics_steps} does not work with DeepSpeed, which keeps gradients and "
                "weights to itself. Use 0."
            )
