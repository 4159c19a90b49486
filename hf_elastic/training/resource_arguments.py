"""Training arguments for what a training may take: memory, time, examples, compute."""

import math
from dataclasses import dataclass, field

from transformers.trainer_utils import IntervalStrategy

from .argument_checks import check_number, check_whole_number


@dataclass(repr=False)
class ResourceArguments:
    """What a training may take, and how it adapts to that.

    Args:
        micro_batch_size (`int`, *optional*):
            How many of a batch's `per_device_train_batch_size` rows run through the model at once, all by default. It
            changes the memory that a step needs, and not the gradients.
        adapt_micro_batch_size (`bool`, defaults to `False`):
            Whether the micro-batches follow the memory: 20% more rows after three steps in a row under
            `memory_threshold`, 20% fewer above it, and half of them where a step runs out of memory, which is then
            repeated. Several processes then reduce their gradients after the backward pass instead of during it.
        memory_threshold (`float`, defaults to 0.8):
            Share of the memory that `adapt_micro_batch_size` aims at, in (0, 1].
        keep_effective_batch (`bool`, defaults to `True`):
            Whether a step has the same number of rows throughout. With False, `adapt_micro_batch_size` also makes the
            batch grow beyond `per_device_train_batch_size` as the memory allows; the training ends after
            `max_examples`, its schedules count examples, and how many steps it has shows at the end. Evaluations,
            checkpoints and logs are then asked for by a number of steps, not by a share of them.
        max_minutes (`float`, *optional*):
            Ends the training after so many minutes, evaluations included.
        max_examples (`int`, *optional*):
            Ends the training after so many examples, over all processes and epochs.
        adapt_num_random_subnets (`bool`, defaults to `False`):
            Whether `num_random_subnets` follows the time: more where the training would end long before
            `max_minutes`, fewer where it would end after them.
        log_resources (`bool`, defaults to `False`):
            Whether the log has the memory in use and the throughput, see [`ResourceLog`].
        early_stopping_min_gain (`float`, *optional*):
            Ends the training when `metric_for_best_model` gains less than this per pass of the full model over the
            training data.
        early_stopping_patience (`int`, defaults to 3):
            How many evaluations that gain is measured over.
    """

    micro_batch_size: int | None = field(
        default=None,
        metadata={"help": "How many rows of a batch run through the model at once; all by default."},
    )
    adapt_micro_batch_size: bool = field(
        default=False,
        metadata={"help": "Whether the micro-batches follow the memory, and a step that runs out of it is repeated."},
    )
    memory_threshold: float = field(
        default=0.8, metadata={"help": "Share of the memory that adapt_micro_batch_size aims at."}
    )
    keep_effective_batch: bool = field(
        default=True,
        metadata={"help": "Whether adapt_micro_batch_size leaves the batch as it is, or lets it grow."},
    )
    max_minutes: float | None = field(
        default=None, metadata={"help": "Ends the training after so many minutes, evaluations included."}
    )
    max_examples: int | None = field(default=None, metadata={"help": "Ends the training after so many examples."})
    adapt_num_random_subnets: bool = field(
        default=False, metadata={"help": "Whether num_random_subnets follows the time that is left of max_minutes."}
    )
    log_resources: bool = field(
        default=False, metadata={"help": "Whether the log has the memory in use and the throughput."}
    )
    early_stopping_min_gain: float | None = field(
        default=None,
        metadata={
            "help": "Ends the training when metric_for_best_model gains less per pass of the full model over the data."
        },
    )
    early_stopping_patience: int = field(
        default=3, metadata={"help": "How many evaluations early_stopping_min_gain is measured over."}
    )

    def check_resources(self) -> None:
        """Checks the arguments of this group, when those of transformers are set.

        Raises:
            TypeError: If a value is of another kind.
            ValueError: If a value is out of range or two do not go together.
        """
        check_whole_number("early_stopping_patience", self.early_stopping_patience, smallest=1)
        for name in ("micro_batch_size", "max_examples"):
            if getattr(self, name) is not None:
                check_whole_number(name, getattr(self, name), smallest=1)
        check_number("memory_threshold", self.memory_threshold)
        if not 0 < self.memory_threshold <= 1:
            raise ValueError(f"memory_threshold={self.memory_threshold} is no share of the memory. Give e.g. 0.8.")
        if self.max_minutes is not None:
            check_number("max_minutes", self.max_minutes)
            if self.max_minutes <= 0:
                raise ValueError(f"max_minutes={self.max_minutes} leaves no time. Give a positive number, or None.")
        self._check_micro_batches()
        self._check_growing_batches()
        self._check_subnet_number()
        self._check_early_stopping()

    def _check_micro_batches(self) -> None:
        size, rows = self.micro_batch_size, self.per_device_train_batch_size
        if size is not None and size > rows:
            raise ValueError(
                f"micro_batch_size={size} is more than per_device_train_batch_size={rows}, which it is a part of. "
                f"Give at most {rows}."
            )
        if not self.adapt_micro_batch_size:
            return
        steps = self.gradient_accumulation_steps
        if steps > 1:
            raise ValueError(
                f"adapt_micro_batch_size=True does not go together with gradient_accumulation_steps={steps}: "
                "repeating a batch would undo those before it. Let micro-batches do the accumulation: "
                f"per_device_train_batch_size={rows * steps}, gradient_accumulation_steps=1, "
                f"micro_batch_size={size or rows}."
            )
        if self.auto_find_batch_size:
            raise ValueError(
                "adapt_micro_batch_size=True and auto_find_batch_size=True both react to running out of memory. Leave "
                "out auto_find_batch_size, which changes the batch and begins the training again."
            )
        if getattr(self, "fsdp_plugin_args", None) or getattr(self, "deepspeed_plugin", None):
            raise ValueError(
                "adapt_micro_batch_size=True does not work with FSDP and DeepSpeed, whose processes wait for each "
                "other within a pass. Give a micro_batch_size that fits."
            )

    def _check_growing_batches(self) -> None:
        if self.keep_effective_batch:
            return
        if not self.adapt_micro_batch_size or self.max_examples is None:
            raise ValueError(
                "keep_effective_batch=False lets the batch follow the memory, up to an end that is counted in "
                "examples. Give adapt_micro_batch_size=True and max_examples, e.g. epochs times examples."
            )
        strategies = (self.eval_strategy, self.save_strategy, self.logging_strategy)
        if IntervalStrategy.EPOCH in strategies:
            raise ValueError(
                "keep_effective_batch=False has no ends of epochs: a batch may lie across two. Give 'steps' for "
                "eval_strategy, save_strategy and logging_strategy."
            )
        if self.train_sampling_strategy != "random":
            raise ValueError(
                f"keep_effective_batch=False draws examples at random, and has no train_sampling_strategy="
                f"{self.train_sampling_strategy!r}. Leave it out."
            )
        if self.max_steps > 0:
            raise ValueError(
                f"max_steps={self.max_steps} does not go together with keep_effective_batch=False, whose steps differ "
                f"in size: max_examples={self.max_examples} ends the training. Leave max_steps out."
            )
        for use, strategy in zip(("eval", "save", "logging"), strategies, strict=True):
            steps = getattr(self, f"{use}_steps")
            if strategy == IntervalStrategy.STEPS and steps < 1:
                raise ValueError(
                    f"{use}_steps={steps} is a share of all steps, whose number is unknown with keep_effective_batch="
                    f"False. Give a number of steps, at most {self.most_steps()}."
                )

    def most_steps(self) -> int:
        """How many steps `max_examples` are where batches never grow: they do not shrink below their first size."""
        return math.ceil(self.max_examples / (self.train_batch_size * self.world_size))

    def _check_subnet_number(self) -> None:
        if not self.adapt_num_random_subnets:
            return
        if self.max_minutes is None:
            raise ValueError("adapt_num_random_subnets=True needs a limit to adapt to. Give max_minutes.")
        if self.sampling != "sandwich":
            raise ValueError(
                f"adapt_num_random_subnets=True does not change sampling={self.sampling!r}, which draws no number of "
                "subnets. Use 'sandwich'."
            )

    def _check_early_stopping(self) -> None:
        if self.early_stopping_min_gain is None:
            return
        check_number("early_stopping_min_gain", self.early_stopping_min_gain)
        if self.early_stopping_min_gain < 0:
            raise ValueError(
                f"early_stopping_min_gain={self.early_stopping_min_gain} is negative, and the best metric never gets "
                "worse. Give 0 or more; whether greater is better says greater_is_better."
            )
        if self.eval_strategy == IntervalStrategy.NO:
            raise ValueError("early_stopping_min_gain needs evaluations. Give eval_strategy='epoch' or 'steps'.")
        if self.metric_for_best_model is None:
            raise ValueError("early_stopping_min_gain needs a metric. Give metric_for_best_model, e.g. 'mean_loss'.")
