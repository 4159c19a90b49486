"""A limit to what a training may take, in minutes or in examples."""

from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from .processes import any_process
from .resource_callback import TimedCallback


class TrainingBudget(TimedCallback):
    """Ends a training when its budget is used up: evaluated and saved as the arguments say, the best model loaded.

    Reads `max_minutes` and `max_examples` from the training arguments. The step that passes a limit is the last one;
    the evaluation and the checkpoint that follow are not cut short. A resumed training goes on with what is left, and
    takes one step where nothing is.

    Attributes:
        seconds (`float`): Time used, evaluations included, interruptions not.
        examples (`int`): Examples trained on, repeated ones each time.
    """

    saved = ("seconds", "examples")

    def __init__(self) -> None:
        super().__init__()
        self.examples = 0

    def on_examples(self, examples: int, passes: float) -> None:
        self.examples += examples

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if control.should_training_stop:
            return
        over_time = args.max_minutes is not None and self.read_clock() >= 60 * args.max_minutes
        over_examples = args.max_examples is not None and self.examples >= args.max_examples
        # Clocks differ: the processes do not pass a limit at the same step.
        if not any_process(over_time or over_examples, args.device):
            return
        # Batches that may grow are counted in examples: then these are no limit, but the length of the training.
        if args.keep_effective_batch or not over_examples:
            limits = [f"{name}={getattr(args, name)}" for name in ("max_minutes", "max_examples")]
            self.note_ending(
                f"{' and '.join(limit for limit in limits if not limit.endswith('None'))} ended the training at step "
                f"{state.global_step} of {state.max_steps}, after {self.seconds / 60:.1f} minutes and {self.examples} "
                "examples.",
                state,
            )
        control.should_training_stop = control.should_log = True
        # With the other strategies, transformers evaluates and saves at the end of the epoch, which this stops.
        if args.eval_strategy == IntervalStrategy.STEPS and args.eval_delay <= state.global_step:
            control.should_evaluate = True
        if args.save_strategy == SaveStrategy.STEPS:
            control.should_save = True
