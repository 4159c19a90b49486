"""Trainer of transformers that trains all sizes of a supernet at once.

What is distinctive: a training step is one ordinary step per subnet, the largest first, whose gradients add up before
the one optimizer step. Every loss is divided by the number of its units in the whole accumulated batch, so that
neither accumulation nor the number of processes changes the gradients.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer
from transformers.trainer_utils import EvalLoopOutput, TrainOutput, unwrap_peft_model
from transformers.utils import ModelOutput

from ..compression.cost import count_parameters
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import SubnetConfig
from .arguments import ElasticTrainingArguments
from .coverage import merge_metrics, trained_subnets, without_prefix
from .distillation import Reference, UnitCounts, hidden_loss, soft_loss, teach
from .loss_log import LossLog
from .sampling import SubnetSampler
from .teacher_checks import check_teachers, list_teachers
from .validation import (
    check_datasets,
    check_label_column,
    check_metric,
    check_model,
    check_subnets,
    check_weights,
)


class ElasticTrainer(Trainer):
    """[`~transformers.Trainer`] for a supernet: trains its named subnets and the full model together.

    Evaluation covers all of them: `eval_<subnet>_<metric>` for each, `eval_mean_<metric>` over the named ones, and
    `eval_<metric>` for the full model. `predict` and everything else are the parent's.

    A training logs `loss_<subnet>`, and where a subnet learns from others the parts of it: `task_loss_<subnet>`,
    `distillation_loss_<subnet>` and `hidden_loss_<subnet>`. Each is the mean over the steps that ran the subnet.

    Subnets that are named anew in `model.config.subnets` count from the next training or evaluation on.

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

    def __init__(
        self,
        model: PreTrainedModel | nn.Module | None = None,
        args: ElasticTrainingArguments | None = None,
        *positional: Any,
        teachers: Sequence[PreTrainedModel] | None = None,
        **keywords: Any,
    ) -> None:
        args = ElasticTrainingArguments("tmp_trainer") if args is None else args
        if not isinstance(args, ElasticTrainingArguments):
            raise TypeError(
                f"args is a {type(args).__name__}. Give ElasticTrainingArguments; it takes the same values."
            )
        self.teachers = list_teachers(teachers)
        self.subnets: dict[str, SubnetConfig] = {}
        self.subnet_metrics: dict[str, dict[str, float]] = {}
        self._drawn: list[str] = []  # the subnets of the training step that runs, empty outside of one
        self._references: list[Reference] = []
        self._counts: UnitCounts | None = None
        self._losses = LossLog()
        super().__init__(model, args, *positional, **keywords)
        for teacher in self.teachers:
            teacher.eval().requires_grad_(False).to(args.device)

    @property
    def elastic_model(self) -> ElasticPreTrainedModel:
        """The supernet itself, without adapters and wrappers."""
        return unwrap_peft_model(self.accelerator.unwrap_model(self.model, keep_torch_compile=False))

    def _validate_args(self) -> None:
        # Here rather than in __init__: `model_init` has run, and neither folders nor repositories are made yet.
        super()._validate_args()
        check_model(self.model)
        self._read_subnets()
        check_datasets(self.model, self.train_dataset, self.eval_dataset)
        if self.args.remove_unused_columns:
            check_label_column(self.model, self.train_dataset, self.label_names)
        check_teachers(self.teachers, self.model, self.args)
        named, only_loss = self.elastic_model.config.subnets, self.compute_metrics is None
        check_metric(self.args.metric_for_best_model, named, self.eval_dataset, only_loss)

    def _read_subnets(self) -> None:
        """Takes over the sizes that the model names now: other ones may have been named since, by `model_init` too."""
        model = self.elastic_model
        subnets = trained_subnets(model)
        if subnets == self.subnets:
            return
        check_subnets(model, subnets)
        check_weights(self.args, subnets)
        sizes = {name: count_parameters(model, subnet).encoder for name, subnet in subnets.items()}
        self.subnets, self.full_name = subnets, max(sizes, key=sizes.get)
        self.sampler = SubnetSampler(sizes, self.args.sampling, self.args.num_random_subnets, self.args.seed)

    def _inner_training_loop(self, *positional: Any, **keywords: Any) -> TrainOutput:
        # Here rather than in train(): `model_init` has run.
        self._read_subnets()
        return super()._inner_training_loop(*positional, **keywords)

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, Tensor | int | None]:
        """Collects the micro-batches of a step and counts the units that its losses are divided by."""
        batches, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, num_items
        counts = torch.stack([torch.stack(UnitCounts.of(batch)) for batch in batches]).sum(dim=0).to(device)
        if self.args.average_tokens_across_devices and self.args.world_size > 1:
            counts = self.accelerator.reduce(counts)
        self._counts = UnitCounts(*counts)
        # The parent counts only what is called `labels`: not the start and end of a span.
        num_items = self._counts.labels if num_items is None else torch.as_tensor(num_items)
        return batches, num_items.clamp(min=1)  # a batch without a label has the loss 0, not 0 / 0

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Runs forward and backward of one micro-batch for each subnet of the step, and adds up the losses.

        One backward pass per subnet costs less time and memory than one through all of them.
        """
        inputs = self._prepare_inputs(inputs)
        self._drawn = self.sampler.draw(self.state.global_step)
        self._references = [self._teach(teacher, inputs) for teacher in self.teachers]
        try:
            losses = []
            for name in self._drawn:
                with nullcontext() if name == self._drawn[-1] else self._gathering_gradients(model):
                    losses.append(super().training_step(model, {**inputs, "subnet": name}, num_items_in_batch))
        finally:
            self._drawn, self._references = [], []
        return torch.stack(losses).sum()

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
        name = inputs["subnet"]
        aligned = self.args.hidden_weight > 0
        extra = {"subnet": self.subnets[name], "output_hidden_states": aligned, "return_dict": True}
        task, outputs = super().compute_loss(model, {**inputs, **extra}, True, num_items_in_batch)
        loss = self._weighted(name, task, outputs, inputs)
        if name == self._drawn[0] and self.args.inplace_distillation:
            self._references.append(Reference.of(outputs))
        if name == self._drawn[-1]:
            loss = loss + self._touch_parameters(model)
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(
        self,
        dataloader: torch.utils.data.DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """The parent's loop for predictions; for evaluations that loop once per subnet, as one result."""
        run = partial(super().evaluation_loop, dataloader, description, prediction_loss_only, ignore_keys)
        if description != "Evaluation":
            return run(metric_key_prefix)
        self._read_subnets()
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
        # The summary at the end ("train_loss") has no place for them, but they do not belong to the next training.
        means = self._losses.pop_means() if {"loss", "train_loss"} & logs.keys() else {}
        if "loss" in logs and means:
            values = self.accelerator.reduce(torch.stack(list(means.values())), reduction="mean").tolist()
            logs.update(zip(means, values, strict=True))
        super().log(logs, start_time)

    def _teach(self, teacher: nn.Module, inputs: dict[str, Any]) -> Reference:
        with self.compute_loss_context_manager(), self.accelerator.autocast():
            return teach(teacher, inputs, output_hidden_states=self.args.hidden_weight > 0)

    def _weighted(self, name: str, task: Tensor, outputs: ModelOutput, inputs: dict[str, Any]) -> Tensor:
        """The loss of a subnet: that of the task, and those against what it learns from."""
        losses, weights = {"task": task}, {"task": 1.0}
        if self._references:
            progress = min(self.state.global_step / self.state.max_steps, 1.0)
            weights = {
                "task": self.args.task_weight,
                "distillation": self.args.distillation_weight_at(progress),
                "hidden": self.args.hidden_weight,
            }
            losses |= self._distillation_losses(outputs, inputs, weights)
        total = self.args.subnet_weights.get(name, 1.0) * sum(weights[kind] * loss for kind, loss in losses.items())
        self._losses.add(f"loss_{name}", self.state.global_step, total)
        if self._references:
            for kind, loss in losses.items():
                # Not `loss_<name>_<kind>`, which is `loss_<name>` of a subnet called "small_task".
                self._losses.add(f"{kind}_loss_{name}", self.state.global_step, loss)
        return total

    def _distillation_losses(
        self, outputs: ModelOutput, inputs: dict[str, Any], weights: dict[str, float]
    ) -> dict[str, Tensor]:
        """The losses of a subnet against its references that have a weight, each the mean over the references."""
        problem_type = self.elastic_model.config.problem_type
        objectives = {
            "distillation": partial(soft_loss, temperature=self.args.temperature, problem_type=problem_type),
            "hidden": hidden_loss,
        }
        # As the parent does with the task's loss: the processes' gradients are averaged, and ours are parts of a sum.
        scale = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
        losses = {}
        for kind, objective in objectives.items():
            if weights[kind] > 0:
                against = [objective(outputs, reference, inputs, self._counts) for reference in self._references]
                losses[kind] = scale * torch.stack(against).mean()
        return losses

    def _touch_parameters(self, model: nn.Module) -> Tensor | float:
        """Zero, with a zero gradient for every trainable parameter.

        Of what the earlier passes of a step gathered, DDP reduces only the parameters that the last pass has a
        gradient for. And a parameter without a gradient would be left out by the optimizer in one process, but not in
        several.
        """
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            return 0.0
        if self.accelerator.num_processes == 1 and self._drawn[0] == self.full_name:
            return 0.0
        return sum(parameter.flatten()[:0].sum() for parameter in model.parameters() if parameter.requires_grad)

    @contextmanager
    def _gathering_gradients(self, model: nn.Module) -> Iterator[None]:
        """For all passes of a step but its last: gradients stay in their process, and DeepSpeed takes no step yet."""
        state = self.accelerator.gradient_state
        synchronizes = state.sync_gradients
        state._set_sync_gradients(False)
        try:
            # FSDP has to reduce after each pass: a layer that the last one leaves out would not be reduced at all.
            with nullcontext() if self.is_fsdp_enabled else self.accelerator.no_sync(model):
                yield
        finally:
            state._set_sync_gradients(synchronizes)
