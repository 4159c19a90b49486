"""Trainer of transformers with what a training of any model gains from: the mechanisms that know of no subnets.

What is distinctive: each mechanism is a callback or a function of its own. Here is only what a callback cannot do: to
surround an evaluation or a checkpoint, to clip, and to judge a step before the optimizer takes it.
"""

import copy
import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainerCallback
from transformers.trainer_utils import EvalLoopOutput, TrainOutput, has_length, unwrap_peft_model

from .arguments import ElasticTrainingArguments
from .callbacks import callbacks_for, find_callback, find_callbacks, replace_callbacks
from .clipping import PercentileClipping, clip_adaptively, clippable_parameters
from .complete_checkpoints import choose_checkpoint
from .growing_batches import (
    AdaptBatchSize,
    check_growing_data,
    check_growing_schedule,
    make_growing_dataloader,
)
from .loss_guard import LossGuard
from .optimizer_checks import check_given_optimizer, planned_schedule
from .parameter_groups import with_parameter_groups
from .provenance import RunRecord
from .sharding import check_launch, check_tied_weights
from .stored_callback import StoredCallback
from .training_statistics import TrainingStatistics
from .weight_averaging import WeightAveraging, load_training_weights


class BaseTrainer(Trainer):
    """[`~transformers.Trainer`] with learning rates by depth, adaptive clipping, averaged weights, and a guard.

    Predictions come in the order of the rows, with `train_sampling_strategy="group_by_length"` as well.

    See [`OptimizationArguments`], [`ResourceArguments`] and [`StabilityArguments`].

    Args:
        positional, keywords:
            Those of [`~transformers.Trainer`], with [`ElasticTrainingArguments`].
    """

    args: ElasticTrainingArguments

    def __init__(self, *positional: Any, **keywords: Any) -> None:
        self._run_record: RunRecord | None = None
        super().__init__(*positional, **keywords)
        # The classes of the callbacks that the arguments have asked for; None where they are not to be asked.
        self._own_callbacks: set[type[TrainerCallback]] | None = set()
        self._renew_callbacks()

    def _validate_args(self) -> None:
        if not self.args.keep_effective_batch:
            check_growing_data(self.train_dataset)
            check_growing_schedule(planned_schedule(self))
        super()._validate_args()
        check_launch(self)
        check_tied_weights(unwrap_peft_model(self.model))
        if self.is_deepspeed_enabled:
            self.args.check_deepspeed()
        check_given_optimizer(self)

    def _make_callbacks(self) -> list[TrainerCallback]:
        """Makes the callbacks that the arguments ask for as they are now."""
        steps = self.args.statistics_steps
        statistics = [TrainingStatistics(steps, self.log)] if steps else []
        return [*callbacks_for(self.args, self._training_progress), *statistics]

    def _renew_callbacks(self) -> None:
        if self._own_callbacks is None:
            return
        for statistics in find_callbacks(self, TrainingStatistics):
            statistics.forget()  # a training that broke off left its hooks
        removed = self._own_callbacks - {type(callback) for callback in self.callback_handler.callbacks}
        callbacks = [callback for callback in self._make_callbacks() if type(callback) not in removed]
        replace_callbacks(self, self._own_callbacks, callbacks)
        self._own_callbacks = removed | {type(callback) for callback in callbacks}

    @property
    def run_record(self) -> RunRecord:
        """What the last training can be told by and repeated with, or the next one before the first."""
        if self._run_record is None:
            self._run_record = RunRecord.of(self.args, self.train_dataset, self.eval_dataset)
        return self._run_record

    @run_record.setter
    def run_record(self, record: RunRecord) -> None:
        self._run_record = record

    def train(self, resume_from_checkpoint: str | bool | None = None, **keywords: Any) -> TrainOutput:
        """The parent's training; `resume_from_checkpoint=True` resumes from the last checkpoint that is whole."""
        self._run_record = None  # of this training, whatever its arguments and data are now
        if resume_from_checkpoint is True:
            resume_from_checkpoint = choose_checkpoint(self.args.output_dir, self.accelerator)
        return super().train(resume_from_checkpoint, **keywords)

    def _inner_training_loop(self, *positional: Any, **keywords: Any) -> TrainOutput:
        # Those of an earlier training have its state, and arguments may have been changed since.
        self._renew_callbacks()
        return super()._inner_training_loop(*positional, **keywords)

    def get_train_dataloader(self) -> DataLoader:
        """The parent's loader, or one whose batches may grow."""
        if self.args.keep_effective_batch:
            return super().get_train_dataloader()
        dataset, collator = self.train_dataset, self.data_collator
        if hasattr(dataset, "column_names"):
            dataset = self._remove_unused_columns(dataset, description="training")
        else:
            collator = self._get_collator_with_removed_columns(collator, description="training")
        settings = {"collate_fn": collator, "num_workers": self.args.dataloader_num_workers}
        return make_growing_dataloader(dataset, self.args, self.accelerator, **settings)

    def set_initial_training_values(self, args: ElasticTrainingArguments, dataloader: DataLoader) -> tuple[Any, ...]:
        """The parent's, where batches that grow have as many steps as if they did not."""
        if not args.keep_effective_batch and args.max_steps <= 0:
            args = copy.copy(args)
            args.max_steps = args.most_steps()
        return super().set_initial_training_values(args, dataloader)

    def _training_progress(self) -> float:
        """The share of the training that is done, in [0, 1]: of its examples where batches grow, else of its steps."""
        if (growing := find_callback(self, AdaptBatchSize)) is not None:
            return min(growing.examples / self.args.max_examples, 1.0)
        return min(self.state.global_step / self.state.max_steps, 1.0)

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler | None:
        # The parent groups by length here as well, and gives predictions in that order, not in that of the rows.
        if not has_length(eval_dataset) or self.args.world_size > 1:
            return None
        return SequentialSampler(eval_dataset)

    def get_optimizer_cls_and_kwargs(
        self, args: ElasticTrainingArguments, model: PreTrainedModel | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The parent's, with learning rates by depth and batch size."""
        optimizer_cls, settings = super().get_optimizer_cls_and_kwargs(args, model)
        batch_size = self.get_total_train_batch_size(args)
        return optimizer_cls, with_parameter_groups(optimizer_cls, settings, model, args, batch_size)

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        percentile, limit = find_callback(self, PercentileClipping), self.args.max_grad_norm or math.inf
        if not self.args.adaptive_clipping and percentile is None:
            return super()._clip_grad_norm(model)
        # Unscales the gradients of float16 as well, which must not happen twice.
        norm = super()._get_grad_norm(model)
        if self.args.adaptive_clipping:
            clip_adaptively(clippable_parameters(self.model), self.args.adaptive_clipping)
        if percentile is not None:
            settings = self.args.percentile_clipping, self.args.percentile_window
            limit = min(limit, percentile.limit(norm, *settings))
        if limit < math.inf:
            self._mixed_mesh_grad_norm(model, limit)
        return norm

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | None = None) -> Tensor:
        # The parent does not come by _clip_grad_norm where max_grad_norm is 0.
        if grad_norm is None and (self.args.adaptive_clipping or self.args.percentile_clipping):
            grad_norm = self._clip_grad_norm(model)
        norm = super()._get_grad_norm(model, grad_norm)
        if (guard := find_callback(self, LossGuard)) is not None:
            guard.check_step(self, norm)
        return norm

    def averaged_weights(self) -> AbstractContextManager[None]:
        """Gives the model the averaged weights until the block ends, if the training averages them."""
        averaging = find_callback(self, WeightAveraging)
        return nullcontext() if averaging is None else averaging.applied(self.model)

    def evaluation_loop(self, *positional: Any, **keywords: Any) -> EvalLoopOutput:
        """The parent's loop, with averaged weights if the training averages them."""
        with self.averaged_weights():
            return super().evaluation_loop(*positional, **keywords)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model, with averaged weights if the training averages them, and a record of the run."""
        if self.args.should_save:  # before the parent, which pushes to the Hub
            self.run_record.save(self.args.output_dir if output_dir is None else output_dir)
        with self.averaged_weights():
            super().save_model(output_dir, _internal_call)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        for callback in find_callbacks(self, StoredCallback) if self.args.should_save else ():
            callback.save(output_dir, self.model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        for callback in find_callbacks(self, StoredCallback):
            callback.load(checkpoint, self.model)
        if find_callback(self, WeightAveraging) is None:
            load_training_weights(checkpoint, self.model)
