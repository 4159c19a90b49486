"""Training of all sizes on several tasks at once, whose batches come in turn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from ..training.trainer import ElasticTrainer
from .multi_task_model import MultiTaskModel
from .task_mixture import MixtureSampler, TaskMixture

logger = logging.get_logger(__name__)


@dataclass
class MultiTaskCollator:
    """Makes a batch of examples of one task, with its number.

    Args:
        texts (`Callable`):
            Makes a batch of texts.
        choices (`Callable`):
            Makes a batch of multiple choice.
    """

    texts: Callable[[list[Any]], dict[str, Any]]
    choices: Callable[[list[Any]], dict[str, Any]]

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        examples = [{name: value for name, value in of.items() if name != "task"} for of in features]
        collate = self.texts if isinstance(examples[0]["input_ids"][0], int) else self.choices
        return {**collate(examples), "task": torch.tensor([of["task"] for of in features])}


class MultiTaskTrainer(ElasticTrainer):
    """[`ElasticTrainer`] for a [`MultiTaskModel`] and a [`TaskMixture`].

    `gradient_conflicts` is between the tasks as well, of those that one step has batches of: with
    `gradient_accumulation_steps` as many batches, each of one task.

    Raises:
        TypeError: If model or data are of another kind.
        ValueError: If teachers are given, or arguments do not suit several tasks.
    """

    args_of_one_size: ClassVar[tuple[str, ...]] = ("gradient_conflicts",)
    _fixed_shares: dict[str, float] | None = None

    def _validate_args(self) -> None:
        for value, kind in ((self.model, MultiTaskModel), (self.train_dataset, TaskMixture)):
            if not isinstance(value, kind):
                raise TypeError(
                    f"MultiTaskTrainer trains a MultiTaskModel on a TaskMixture: a {type(value).__name__} is no "
                    f"{kind.__name__}."
                )
        if self.teachers:
            raise ValueError("teachers have one task: leave them out where several are trained together.")
        for name in ("save_strategy", "eval_strategy"):
            if (value := getattr(self.args, name)) != "no":
                raise ValueError(
                    f"{name}={value.value!r}: a training on several tasks keeps no checkpoints and is evaluated at "
                    "its end. Leave it out, with what needs it (on_bad_step='rollback', load_best_model_at_end, "
                    "early_stopping_min_gain)."
                )
        if self.args.label_smoothing_factor and any(task.label_range is not None for task in self.model.tasks):
            raise ValueError(
                f"label_smoothing_factor={self.args.label_smoothing_factor} is of classes, and a task is a regression."
            )
        if not self.args.keep_effective_batch:
            raise ValueError("keep_effective_batch=False lets batches grow, and those of several tasks cannot.")
        super()._validate_args()

    def _make_callbacks(self) -> list[TrainerCallback]:
        mixing = self.train_dataset.mixing
        updates = [MixtureUpdates(self, mixing.updates)] if mixing.sampling == "dynamic" else []
        return [*super()._make_callbacks(), *updates]

    def _get_train_sampler(self, train_dataset: TaskMixture | None = None) -> MixtureSampler:
        # All processes have the same task in the same step.
        batch_size = self._train_batch_size * self.accelerator.num_processes
        mixture = train_dataset or self.train_dataset
        return MixtureSampler(mixture, batch_size, self.args.seed, self._fixed_shares)

    def get_ranking_dataloader(self) -> DataLoader:
        """Gives batches of all tasks in turn: a small one counts as much as a large one."""
        tasks = self.train_dataset.parts
        self._fixed_shares = dict.fromkeys(tasks, 1 / len(tasks))
        try:
            return super().get_ranking_dataloader()
        finally:
            self._fixed_shares = None

    def gradient_of(self, name: str, inputs: dict[str, Any]) -> str:
        return f"{name} on task {int(inputs['task'][0])}"


class MixtureUpdates(TrainerCallback):
    """Measures in the course of a training how far each task is, and gives those more that are far from their best.

    Args:
        trainer ([`MultiTaskTrainer`]):
            The trainer.
        number (`int`):
            How often in a training.
    """

    def __init__(self, trainer: MultiTaskTrainer, number: int) -> None:
        self.trainer, self.number = trainer, number

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        before, now = ((state.global_step - i) * (self.number + 1) // state.max_steps for i in (1, 0))
        if now == before or state.global_step >= state.max_steps:
            return
        mixture = self.trainer.train_dataset
        scores = mixture.scores(self.trainer)
        mixture.shares = mixture.mixing.shares_by_score(scores)
        self.trainer.log({f"share_{name}": share for name, share in mixture.shares.items()})
        logger.info(f"Step {state.global_step}: scores {scores}, shares {mixture.shares}")
