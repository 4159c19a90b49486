"""Trainer of transformers that trains all sizes of a supernet at once.

What is distinctive: a training step is one ordinary step per subnet, the largest first, whose gradients add up before
the one optimizer step. Every loss is divided by the number of its units in the whole accumulated batch, so that
neither accumulation nor the number of processes changes the gradients.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, TrainerCallback
from transformers.trainer_callback import ProgressCallback
from transformers.trainer_utils import EvalLoopOutput, TrainOutput, unwrap_peft_model
from transformers.utils import ModelOutput

from ..compression.cost import count_parameters
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import SubnetConfig
from .arguments import ElasticTrainingArguments
from .base_trainer import BaseTrainer
from .batch_size import AdaptMicroBatchSize
from .callbacks import find_callback, find_callbacks
from .core_gradients import scaled_gradients
from .coverage import merge_metrics, trained_subnets, without_prefix
from .distillation import Observation, token_mask
from .distiller import Distiller, Source
from .gradient_surgery import GradientSurgery
from .kept_columns import KeptColumns
from .layer_drop import drop_layers
from .micro_batches import run_micro_batches
from .processes import any_process, average_gradients, gathering_gradients, touch_parameters
from .progress import EvaluationProgress
from .projection_training import ProjectionTraining, projections_for
from .resource_callback import ResourceCallback
from .sampling import SubnetSampler
from .sharding import check_sharding, fill_gradients, is_sharded, zero_stage
from .step_notes import StepNotes
from .subnet_number import AdaptSubnetNumber
from .subnet_objective import SubnetObjective
from .subnet_weights import RunningLosses
from .teacher_checks import list_teachers
from .teacher_validation import TeacherWeights
from .teachers import Teacher, freeze, student_inputs
from .trainer_checks import check_data, check_setup
from .training_statistics import TrainingStatistics
from .validation import check_features, check_resumed_subnets, check_subnet_settings, check_subnets


class ElasticTrainer(BaseTrainer):
    """[`~transformers.Trainer`] for a supernet: trains its named subnets and the full model together.

    Evaluation covers all of them: `eval_<subnet>_<metric>` for each, `eval_mean_<metric>` over the named ones, and
    `eval_<metric>` for the full model. `predict` and everything else are the parent's.

    A training logs `loss_<subnet>`, and where a subnet learns from others the parts of it: `task_loss_<subnet>`,
    `distillation_loss_<subnet>` and `hidden_loss_<subnet>`, before their weights. Each is the mean over the steps that
    ran the subnet.

    Subnets that are named anew in `model.config.subnets` count from the next training or evaluation on.
    Values that are changed in `args` count from the next training on, which begins with no state of the last one but
    the weights, and, without `model_init`, the optimizer and the feature projections.

    With `torch_compile`, every size is compiled by itself: for more than 8 raise
    `torch._dynamo.config.recompile_limit`.

    Args:
        model (`ElasticPreTrainedModel`, *optional*):
            A supernet with a head and with named subnets. Adapters may wrap what every subnet runs in full: the head
            and the pooler, and any layer whose heads and neurons no subnet reduces.
        args ([`ElasticTrainingArguments`], *optional*):
            How to train.
        teachers (`Sequence[PreTrainedModel]`, *optional*):
            Models of the same task that every subnet learns from, besides the largest one. They are frozen, and are
            neither optimized nor saved.
        positional, keywords:
            The other arguments of [`~transformers.Trainer`].

    Attributes:
        subnet_metrics (`dict[str, dict[str, float]]`): What the last evaluation gave by subnet, the full model
            included, without prefixes: `trainer.subnet_metrics["small"]["loss"]`.

    Raises:
        TypeError: If the model, the arguments or a teacher are of another kind.
        ValueError: If they do not fit together, the training data are empty, or a label does not exist.

    References:
        Yu and Huang 2019, Universally Slimmable Networks and Improved Training Techniques,
        https://arxiv.org/abs/1903.05134
        Hou et al. 2020, DynaBERT, https://arxiv.org/abs/2004.04037

    Example:
        >>> trainer = ElasticTrainer(model, ElasticTrainingArguments("out"), train_dataset=train, eval_dataset=dev)
        >>> trainer.train()
        >>> trainer.evaluate()["eval_small_loss"]
    """

    # Everything is divided by counts of the whole accumulated batch.
    loss_is_scaled_for_ga = True
    # Arguments about several sizes that say something of the fine-tuning of one as well.
    args_of_one_size: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        model: PreTrainedModel | nn.Module | None = None,
        args: ElasticTrainingArguments | None = None,
        *positional: Any,
        teachers: Sequence[PreTrainedModel | Teacher] | None = None,
        **keywords: Any,
    ) -> None:
        args = ElasticTrainingArguments("tmp_trainer") if args is None else args
        if not isinstance(args, ElasticTrainingArguments):
            raise TypeError(
                f"args is a {type(args).__name__}. Give ElasticTrainingArguments; it takes the same values."
            )
        self.teachers = list_teachers(teachers)
        self.subnets: dict[str, SubnetConfig] = {}
        self._sizes: dict[str, int] = {}  # parameters of the encoder of each
        self.subnet_metrics: dict[str, dict[str, float]] = {}
        self._drawn: dict[str, SubnetConfig] = {}  # what the training step runs, largest first; empty outside of one
        self._notes = StepNotes()
        self.projection_training: ProjectionTraining | None = None
        self.surgery: GradientSurgery | None = None
        super().__init__(model, args, *positional, **keywords)
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(EvaluationProgress())

    @property
    def elastic_model(self) -> ElasticPreTrainedModel:
        """The supernet itself, without adapters and wrappers."""
        return unwrap_peft_model(self.accelerator.unwrap_model(self.model, keep_torch_compile=False))

    def _validate_args(self) -> None:
        # Here rather than in __init__: `model_init` has run, and neither folders nor repositories are made yet.
        super()._validate_args()
        check_setup(self)
        check_data(self)
        self._make_mechanisms()

    def _make_mechanisms(self) -> None:
        """Makes what a step consists of, by the arguments and sizes as they are now."""
        projections = projections_for(self.teachers, self.elastic_model.config.hidden_size, self.args.seed)
        if projections is None or not self.args.hidden_weight + self.args.embedding_weight:
            self.projection_training = None
        elif self.projection_training is None or self.model_init is not None:
            self.projection_training = ProjectionTraining(projections.to(self.args.device))
        if is_sharded(self):
            check_sharding(self.args, self.projection_training is not None, zero_stage(self))
        if self.model_init is not None:
            self.subnets = {}  # those of another model, perhaps by the same names
        self._signature_columns = None
        self._read_subnets()
        self._make_objective()
        self.surgery = None
        if self.args.gradient_conflicts != "add":
            parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            self.surgery = GradientSurgery(self.args.gradient_conflicts, parameters, self.args.seed)
        for teacher in self.teachers:
            freeze(teacher, self.args.device, self.args.teacher_dtype)

    def _make_callbacks(self) -> list[TrainerCallback]:
        callbacks = super()._make_callbacks()
        return callbacks if self.projection_training is None else [*callbacks, self.projection_training]

    def _read_subnets(self) -> bool:
        """Takes over the sizes that the model names now, and says whether they are other ones than before."""
        model = self.elastic_model
        subnets = trained_subnets(model)
        if subnets == self.subnets:
            return False
        check_subnets(model, subnets)
        self._sizes = {name: count_parameters(model, subnet).encoder for name, subnet in subnets.items()}
        self.subnets, self.full_name = subnets, max(self._sizes, key=self._sizes.get)
        return True

    def _make_objective(self) -> None:
        model, largest_first = self.elastic_model, sorted(self._sizes, key=lambda name: -self._sizes[name])
        check_subnet_settings(self.args, model, largest_first)
        check_features(self.args, model, self.subnets)
        self.sampler = SubnetSampler(self._sizes, self.args.sampling, self.args.num_random_subnets, self.args.seed)
        projections = self.projection_training and self.projection_training.projections
        distiller = Distiller(self.args, model.config, self.teachers, projections)
        # As the parent does with the task's loss.
        scale = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
        self.objective = SubnetObjective(self.args, largest_first, distiller, scale)

    def _inner_training_loop(self, *positional: Any, **keywords: Any) -> TrainOutput:
        # Here rather than in train(): `model_init` has run. Arguments may have been changed since the last training.
        check_setup(self)
        self._make_mechanisms()
        check_resumed_subnets(keywords.get("resume_from_checkpoint"), self.elastic_model.config.subnets)
        self._notes = StepNotes()  # one that broke off left some
        self.objective.distiller.open_caches(self.train_dataset)
        return super()._inner_training_loop(*positional, **keywords)

    def get_ranking_dataloader(self) -> DataLoader:
        """Gives training batches in random order, to rank units by: those by length begin with the longest."""
        strategy, self.args.train_sampling_strategy = self.args.train_sampling_strategy, "random"
        try:
            return self.get_train_dataloader()
        finally:
            self.args.train_sampling_strategy = strategy

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The parent's optimizer, with groups by depth, which trains feature projections as well."""
        optimizer = super().create_optimizer(model)
        if self.projection_training is not None:
            self.projection_training.add_to(optimizer, self.args.weight_decay, self.lr_scheduler is not None)
        return optimizer

    def _set_signature_columns_if_needed(self) -> None:
        """Keeps the columns of teachers with inputs of their own, and the examples' ids for their caches."""
        if self._signature_columns is None:
            super()._set_signature_columns_if_needed()
            has_cache = self.args.teacher_cache_dir is not None
            self._signature_columns = KeptColumns(self._signature_columns, self.teachers, has_cache)

    def _remove_unused_columns(self, dataset: Any, description: str | None = None) -> Any:
        self._set_signature_columns_if_needed()
        self._signature_columns.add_from(dataset.column_names)
        return super()._remove_unused_columns(dataset, description)

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], *positional: Any, **keywords: Any
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The parent's, without what only teachers read."""
        return super().prediction_step(model, student_inputs(inputs, self.teachers), *positional, **keywords)

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, Tensor | int | None]:
        """Collects the micro-batches of a step and counts the units that its losses are divided by."""
        batches, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, num_items
        is_reduced = self.args.average_tokens_across_devices and self.args.world_size > 1
        self.objective.count(batches, device, self.accelerator.reduce if is_reduced else None)
        # The parent counts only what is called `labels`: not the start and end of a span.
        num_items = self.objective.counts[None].labels if num_items is None else torch.as_tensor(num_items)
        return batches, num_items.clamp(min=1)  # a batch without a label has the loss 0, not 0 / 0

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Runs forward and backward of a batch for each subnet of the step, and adds up the losses.

        One backward pass per subnet costs less time and memory than one through all of them.
        """
        inputs = self._prepare_inputs(inputs)
        self._weigh_teachers()
        if (running := find_callback(self, RunningLosses)) is not None:
            self.objective.running_losses = running.means
        adaptation = find_callback(self, AdaptMicroBatchSize)
        agree = partial(any_process, device=self.args.device) if adaptation and self.args.world_size > 1 else None
        loss = run_micro_batches(
            inputs,
            partial(self._train_part, model, num_items_in_batch),
            adaptation.rule.size if adaptation else self.args.micro_batch_size or len(token_mask(inputs)),
            retry=adaptation and partial(self._undo_step, model, adaptation),
            agree=agree,
        )
        if self.accelerator.sync_gradients:
            if self.surgery is not None:
                self.surgery.combine(self.state.global_step, partial(self.accelerator.reduce, reduction="mean"))
            elif agree is not None:
                average_gradients(model.parameters())
            elif is_sharded(self) and not self.is_deepspeed_enabled:
                fill_gradients(model.parameters())
        self._notes.tell(self, loss)
        return loss

    def _train_part(
        self, model: nn.Module, num_items_in_batch: Tensor | int | None, inputs: dict[str, Any], reduces: bool
    ) -> Tensor:
        """Runs a part of a batch for each subnet; `reduces` says whether processes reduce their gradients after it."""
        step, distiller = self.state.global_step, self.objective.distiller
        number = find_callback(self, AdaptSubnetNumber)
        with self.compute_loss_context_manager(), self.accelerator.autocast():
            distiller.ask_teachers(inputs)
        inputs = student_inputs(inputs, self.teachers)
        names = self.sampler.draw(step, number and number.number)
        # FSDP has to reduce after each pass: a layer that the last one leaves out would not be reduced at all.
        keeps_reducing = is_sharded(self) and not self.is_deepspeed_enabled
        gathering = partial(gathering_gradients, self.accelerator, model, keeps_reducing=keeps_reducing)
        core, losses = list(self.elastic_model.base_model.parameters()), []
        self._drawn = {name: self._subnet_at(name, step) for name in names}
        try:
            for name in names:
                is_last = reduces and name == names[-1] and self.surgery is None
                factor = 1.0 if name == names[0] else self.args.core_gradient_scale
                with nullcontext() if is_last else gathering(), scaled_gradients(core, factor):
                    losses.append(super().training_step(model, {**inputs, "subnet": name}, num_items_in_batch))
                if self.surgery is not None:
                    self.surgery.take(self.gradient_of(name, inputs))
        finally:
            self._drawn, distiller.sources = {}, []
        return torch.stack(losses).sum()

    def gradient_of(self, name: str, inputs: dict[str, Any]) -> str:
        """Names what a gradient is of, for the handling of conflicts: a subnet."""
        return name

    def _undo_step(self, model: nn.Module, adaptation: AdaptMicroBatchSize, size: int) -> int:
        """Forgets what a step has done so far that ran out of memory, and gives the size to repeat it with."""
        model.zero_grad()
        self._notes.forget_batch()
        if (statistics := find_callback(self, TrainingStatistics)) is not None:
            statistics.forget_activations()
        if self.surgery is not None:
            self.surgery.clear()
        if self.projection_training is not None:
            self.projection_training.zero_gradients()
        return adaptation.rule.run_out(size)

    def _weigh_teachers(self) -> None:
        """Weighs the teachers by the evaluation data, once for a training and all that resume it."""
        callback = find_callback(self, TeacherWeights)
        if callback is None or not self.teachers:
            return
        if callback.weights is None:
            problem_type = self.elastic_model.config.problem_type
            callback.measure(self.teachers, self.get_eval_dataloader(), self.accelerator, problem_type)
        self.objective.distiller.weights = callback.of(self.teachers)

    def _subnet_at(self, name: str, step: int) -> SubnetConfig:
        """What a subnet runs at a step: itself, or without the layers that are dropped then."""
        draw = f"{self.args.seed}-{step}-{name}"
        return drop_layers(self.subnets[name], self.elastic_model.config, self.args.layer_drop, draw)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, ModelOutput]:
        """The parent's loss; within a training step that of one subnet, with what it learns from others."""
        if not self._drawn:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        name, distiller = inputs["subnet"], self.objective.distiller
        subnet = self._drawn[name]
        inputs = self.objective.inputs_of(name, inputs)
        extra = {"subnet": subnet, "output_hidden_states": distiller.reads_hidden_states, "return_dict": True}
        if distiller.reads_attention:
            extra["unpad_inputs"] = False  # which would put all texts into one row
        with distiller.observing(model) as attention:
            task, outputs = super().compute_loss(model, {**inputs, **extra}, True, num_items_in_batch)
        student = Observation.of(outputs, attention)
        loss, parts = self.objective(
            name, subnet, task, student, inputs, self.state.global_step, self._training_progress()
        )
        self._notes.add(name, {"loss": loss, **{f"{kind}_loss": part for kind, part in parts.items()}}, task)
        names = list(self._drawn)
        if name == names[0] and self.args.inplace_distillation:
            distiller.sources.append(Source(student.detached()))
        if name == names[-1] and self._leaves_out_parameters():
            loss = loss + touch_parameters(model)
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(
        self,
        dataloader: DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """The parent's loop for predictions; for evaluations that loop once per subnet, as one result."""
        run = partial(super().evaluation_loop, dataloader, description, prediction_loss_only, ignore_keys)
        several = description == "Evaluation"
        if several and self._read_subnets():
            self._make_objective()
        for progress in find_callbacks(self, EvaluationProgress):
            progress.passes = len(self.subnets) if several else 1
        if not several:
            return run(metric_key_prefix)
        outputs = {}
        for name, subnet in self.subnets.items():
            with self.elastic_model.use_subnet(subnet):
                outputs[name] = run(metric_key_prefix)
        self.subnet_metrics = {
            name: without_prefix(output.metrics, metric_key_prefix) for name, output in outputs.items()
        }
        named = {name: self.subnet_metrics[name] for name in self.elastic_model.config.subnets}
        full = outputs[self.full_name]
        return full._replace(metrics={**full.metrics, **merge_metrics(named, metric_key_prefix)})

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the mean losses of each subnet since the last log to what a training step logs."""
        means = self._notes.log.pop_means() if "loss" in logs else {}
        if means:
            values = self.accelerator.reduce(torch.stack(list(means.values())), reduction="mean").tolist()
            logs.update(zip(means, values, strict=True))
            for callback in find_callbacks(self, ResourceCallback):
                logs.update(callback.logs())
        super().log(logs, start_time)

    def _leaves_out_parameters(self) -> bool:
        """Whether the passes of a step may leave parameters without a gradient, which they must not."""
        if is_sharded(self):
            return False
        is_full = not self.args.layer_drop and self.full_name in self._drawn
        return self.accelerator.num_processes > 1 or not is_full
