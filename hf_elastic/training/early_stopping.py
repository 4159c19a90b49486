"""Early stopping when an evaluation metric gains too little for what the training costs."""

import math
from typing import Any

from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import has_length

from .resource_callback import ResourceCallback


class CostAwareEarlyStopping(ResourceCallback, EarlyStoppingCallback):
    """Stops when the gain of `metric_for_best_model` per unit of compute falls under a minimum.

    The unit is one pass of the full model over the training data, and a subnet costs the share of it that its encoder
    parameters are: a step of the full model and a subnet of half its size costs 1.5 times the examples of the step.
    Teachers and evaluations do not count. For data without a length, the unit is the full model on all examples that
    `max_steps` come to.

    After each evaluation, the best metric so far is compared with the best one `early_stopping_patience` evaluations
    ago: the difference divided by the compute between the two has to be at least `early_stopping_min_gain`. Both are
    read from the training arguments, and so is whether greater is better.

    Attributes:
        compute (`float`): Units used so far.
        history (`list[list[float]]`): Compute and best metric at each evaluation.

    References:
        Prechelt 1998, Early Stopping - But When?, https://doi.org/10.1007/3-540-49430-8_3, whose criteria weigh
        progress against generalization; here the price is counted in compute.
    """

    saved = ("compute", "history")

    def __init__(self) -> None:
        super().__init__()
        self.compute = 0.0
        self.history: list[list[float]] = []

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: DataLoader | None = None,
        **kwargs: Any,
    ) -> None:
        # Not the other parent's, which checks what the arguments have checked, and warns by a name nobody gave.
        ResourceCallback.on_train_begin(self, args, state, control, **kwargs)
        dataset = train_dataloader.dataset
        batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        self._unit = len(dataset) if has_length(dataset) else batch * state.max_steps

    def on_examples(self, examples: int, passes: float) -> None:
        self.compute += examples * passes / self._unit

    def check_metric_value(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metric_value: float
    ) -> None:
        """What the parent asks of each evaluation: whether to count it as one without improvement, which stops."""
        if self.history and self.history[-1][0] == self.compute:
            return  # evaluated again, outside of the training
        sign = 1 if args.greater_is_better else -1
        best = sign * metric_value if not math.isnan(metric_value) else -math.inf
        best = max([best, *(sign * metric for _, metric in self.history[-1:])])
        self.history.append([self.compute, sign * best])
        if len(self.history) <= args.early_stopping_patience:
            return
        compute, before = self.history[-1 - args.early_stopping_patience]
        gain = (best - sign * before) / (self.compute - compute)
        # Neither is the gain of a metric that never was a number. After the last step there is nothing to stop.
        if not gain >= args.early_stopping_min_gain and state.global_step < state.max_steps:
            self.note_ending(
                f"early_stopping_min_gain={args.early_stopping_min_gain} ended the training at step "
                f"{state.global_step} of {state.max_steps}: {args.metric_for_best_model} gained {gain:.2g} per pass "
                f"of the full model over the data in {args.early_stopping_patience} evaluations.",
                state,
            )
            self.early_stopping_patience_counter = self.early_stopping_patience

    def logs(self) -> dict[str, float]:
        return {"full_model_passes": self.compute}
