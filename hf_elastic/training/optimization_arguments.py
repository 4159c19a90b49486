"""Training arguments of the optimization: learning rates by depth and batch size, clipping, weight averaging.

AdamW with its betas and epsilon, 8-bit optimizers (`optim="adamw_bnb_8bit"`, with bitsandbytes), warm-up and decay
(`warmup_steps=0.05, lr_scheduler_type="cosine"`) are [`~transformers.TrainingArguments`]'s own.
"""

from dataclasses import dataclass, field
from typing import Any

from .argument_checks import check_choice, check_number, check_whole_number

WEIGHT_AVERAGES = ("none", "ema", "swa")

# Settings for training from scratch on much text, which differ from those of a fine-tuning: the betas, epsilon and
# weight decay of RoBERTa (Liu et al. 2019, https://arxiv.org/abs/1907.11692). A dictionary, so that one of them is
# changed as any other argument: `ElasticTrainingArguments("out", **{**PRETRAINING_SETTINGS, "learning_rate": 1e-4})`.
PRETRAINING_SETTINGS: dict[str, Any] = {
    "learning_rate": 5e-4,
    "adam_beta1": 0.9,
    "adam_beta2": 0.98,
    "adam_epsilon": 1e-6,
    "weight_decay": 0.01,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.05,
}


@dataclass(repr=False)
class OptimizationArguments:
    """How the optimizer treats different parts of a model, and what becomes of gradients and weights around a step.

    With the defaults, the optimization is that of [`~transformers.Trainer`].

    Args:
        layer_lr_decay (`float`, defaults to 1.0):
            Each layer's learning rate is this multiple of that of the layer above it, e.g. 0.9; the embeddings have
            the lowest. 1 treats all layers alike.
        head_lr_multiplier (`float`, defaults to 1.0):
            How much faster the task's head learns than the encoder.
        adaptive_clipping (`float`, defaults to 0.0):
            Largest ratio of a unit's gradient norm to its weight norm, e.g. 0.01; 0 switches it off.
        percentile_clipping (`float`, defaults to 0.0):
            Percentile of the latest gradient norms that is the limit of the next one, e.g. 10; 0 switches it off.
        percentile_window (`int`, defaults to 100):
            How many gradient norms `percentile_clipping` looks back at.
        scale_lr_with_batch (`bool`, defaults to `False`):
            Whether the learning rate grows with the square root of the batch size. Needs `base_batch_size`.
        base_batch_size (`int`, *optional*):
            The batch size that `learning_rate` was chosen for, with accumulation and over all processes. Given
            together with `scale_lr_with_batch=True` or not at all.
        weight_averaging (`str`, defaults to `"none"`):
            Average of the weights that is evaluated, saved and left in the model: `"ema"` (exponential moving
            average), `"swa"` (mean over the end of the training) or `"none"`.
        ema_decay (`float`, defaults to 0.999):
            Weight of the past in `"ema"`, which reaches back about `1 / (1 - ema_decay)` steps: give less for a
            training of a few hundred steps.
        swa_start (`float`, defaults to 0.75):
            Share of the training after which `"swa"` begins.

    References:
        Howard and Ruder 2018, Universal Language Model Fine-tuning, https://arxiv.org/abs/1801.06146
        Clark et al. 2020, ELECTRA, https://arxiv.org/abs/2003.10555 (layer-wise learning rates)
        Krizhevsky 2014, One weird trick for parallelizing convolutional neural networks,
        https://arxiv.org/abs/1404.5997; Hoffer et al. 2017, Train longer, generalize better,
        https://arxiv.org/abs/1705.08741 (learning rate and batch size)
        Brock et al. 2021, High-Performance Large-Scale Image Recognition Without Normalization,
        https://arxiv.org/abs/2102.06171 (adaptive clipping)
        Seetharaman et al. 2020, AutoClip, https://arxiv.org/abs/2007.14469 (percentile clipping)
        Polyak and Juditsky 1992, Acceleration of Stochastic Approximation by Averaging,
        https://doi.org/10.1137/0330046 (averages of the weights)
        Izmailov et al. 2018, Averaging Weights Leads to Wider Optima and Better Generalization,
        https://arxiv.org/abs/1803.05407 ("swa")
    """

    layer_lr_decay: float = field(
        default=1.0,
        metadata={"help": "Each layer's learning rate is this multiple of that of the layer above it."},
    )
    head_lr_multiplier: float = field(
        default=1.0, metadata={"help": "How much faster the task's head learns than the encoder."}
    )
    adaptive_clipping: float = field(
        default=0.0,
        metadata={"help": "Largest ratio of a unit's gradient norm to its weight norm; 0 switches it off."},
    )
    percentile_clipping: float = field(
        default=0.0,
        metadata={"help": "Percentile of the latest gradient norms that limits the next one; 0 switches it off."},
    )
    percentile_window: int = field(
        default=100, metadata={"help": "How many gradient norms percentile_clipping looks back at."}
    )
    scale_lr_with_batch: bool = field(
        default=False,
        metadata={"help": "Whether the learning rate grows with the root of the batch size over base_batch_size."},
    )
    base_batch_size: int | None = field(
        default=None, metadata={"help": "The whole batch size that learning_rate was chosen for."}
    )
    weight_averaging: str = field(
        default="none",
        metadata={"help": f"Average of the weights to evaluate and to save: {', '.join(WEIGHT_AVERAGES)}."},
    )
    ema_decay: float = field(default=0.999, metadata={"help": "Weight of the past in the exponential average."})
    swa_start: float = field(
        default=0.75, metadata={"help": "Share of the training after which 'swa' begins to average."}
    )

    def check_optimization(self) -> None:
        """Raises TypeError for a setting that is no number, and ValueError for settings that cannot be."""
        for name in (
            "layer_lr_decay",
            "head_lr_multiplier",
            "adaptive_clipping",
            "percentile_clipping",
            "ema_decay",
            "swa_start",
        ):
            check_number(name, getattr(self, name))
        check_choice("weight_averaging", self.weight_averaging, WEIGHT_AVERAGES)
        check_whole_number("percentile_window", self.percentile_window, smallest=1)
        for name, fits, remedy in (
            ("layer_lr_decay", 0 < self.layer_lr_decay <= 1, "above 0, at most 1; 1 treats all layers alike"),
            ("head_lr_multiplier", self.head_lr_multiplier > 0, "above 0; freeze the head to leave it as it is"),
            ("adaptive_clipping", self.adaptive_clipping >= 0, "above 0, e.g. 0.01, or 0 to switch it off"),
            ("percentile_clipping", 0 <= self.percentile_clipping <= 100, "up to 100, e.g. 10, or 0 to switch it off"),
            ("ema_decay", 0 < self.ema_decay < 1, "between 0 and 1, e.g. 0.999"),
            ("swa_start", 0 <= self.swa_start < 1, "from 0 to below 1, e.g. 0.75"),
        ):
            if not fits:
                raise ValueError(f"{name}={getattr(self, name)} is out of range. Give a value {remedy}.")
        if self.adaptive_clipping and self.percentile_clipping:
            raise ValueError(
                f"adaptive_clipping={self.adaptive_clipping} and percentile_clipping={self.percentile_clipping} are "
                "two ways to limit gradients. Give one of them."
            )
        if self.scale_lr_with_batch != (self.base_batch_size is not None):
            raise ValueError(
                f"scale_lr_with_batch={self.scale_lr_with_batch} does not go together with base_batch_size="
                f"{self.base_batch_size}. Give both or none."
            )
        if self.scale_lr_with_batch:
            check_whole_number("base_batch_size", self.base_batch_size, smallest=1)

    def check_deepspeed(self) -> None:
        """Raises ValueError if a setting needs the gradients or weights that DeepSpeed keeps to itself."""
        for name, off in (("adaptive_clipping", 0), ("percentile_clipping", 0), ("weight_averaging", "none")):
            if getattr(self, name) != off:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} does not work with DeepSpeed, which holds gradients and weights "
                    f"in its own form. Give {off!r}, or train with DDP."
                )

    def batch_lr_multiplier(self, batch_size: int) -> float:
        """What the learning rate is multiplied by for a batch size, accumulated and over all processes.

        The noise of a gradient, relative to its length, falls with the square root of the batch size. A step of an
        adaptive optimizer does not grow with the gradient, so that it may be longer by that factor.
        """
        return (batch_size / self.base_batch_size) ** 0.5 if self.scale_lr_with_batch else 1.0
