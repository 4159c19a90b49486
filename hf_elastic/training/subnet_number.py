"""How many subnets a step draws: as many as the time is good for."""

from typing import Any

from torch import nn
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import unwrap_peft_model
from transformers.utils import logging

from .coverage import trained_subnets
from .processes import max_over_processes
from .resource_callback import TimedCallback

logger = logging.get_logger(__name__)

PATIENCE = 3
SPARE_FROM = 0.8


class AdaptSubnetNumber(TimedCallback):
    """Adapts how many random subnets the sandwich has, so that a training uses its `max_minutes` and keeps to them.

    Three steps after a change at the earliest, the time per step since then says when the training would end, by its
    steps or by `max_examples` if it has them: after the limit, and a step draws one subnet fewer; before 80% of it,
    and a step draws one more. The slowest process decides for all.

    What is spare is time, not memory: the graph of a subnet is freed before the next one runs, so that their number
    hardly changes how much memory a step needs.

    Reads `num_random_subnets` (where it begins) and `max_minutes` from the training arguments. A resumed training goes
    on with the number that it had come to, unless it is given another `num_random_subnets` than before.

    Attributes:
        number (`int`): How many random subnets the next step draws.
    """

    saved = ("seconds", "number", "begun_at", "examples", "changed_at_step", "changed_at_seconds")

    def __init__(self) -> None:
        super().__init__()
        self.number: int | None = None
        self.begun_at: int | None = None
        self.examples = 0
        self._examples_of_step = 0
        self.changed_at_step = 0
        self.changed_at_seconds = 0.0

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        self._most = max(len(trained_subnets(unwrap_peft_model(model))) - 2, 0)  # all but the largest and the smallest
        if self.begun_at != args.num_random_subnets:
            self.number = self.begun_at = args.num_random_subnets
            self.changed_at_step, self.changed_at_seconds = state.global_step, self.seconds
        self.number = min(self.number, self._most)

    def on_examples(self, examples: int, passes: float) -> None:
        self.examples += examples
        self._examples_of_step = examples

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        steps = state.global_step - self.changed_at_step
        if steps < PATIENCE:
            return
        seconds_per_step = (self.read_clock() - self.changed_at_seconds) / steps
        left = state.max_steps - state.global_step
        if args.max_examples is not None:
            left = min(left, max(args.max_examples - self.examples, 0) / self._examples_of_step)
        end = self.seconds + seconds_per_step * left
        share = max_over_processes(end / (60 * args.max_minutes), args.device)
        number = self.number - 1 if share > 1 else self.number + 1 if share < SPARE_FROM else self.number
        number = min(max(number, 0), self._most)
        if number != self.number:
            logger.info(
                f"Step {state.global_step}: the training would end after {share:.0%} of its {args.max_minutes} "
                f"minutes. num_random_subnets {self.number} to {number}."
            )
            self.number, self.changed_at_step, self.changed_at_seconds = number, state.global_step, self.seconds

    def logs(self) -> dict[str, float]:
        return {"num_random_subnets": self.number}
