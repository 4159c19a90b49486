"""A trainer that runs its batches in micro-batches, and its arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hf_elastic import ElasticTrainer, ElasticTrainingArguments
from hf_elastic.training.batch_size import AdaptMicroBatchSize
from hf_elastic.training.batch_splitting import Batch
from hf_elastic.training.distillation import token_mask
from hf_elastic.training.micro_batches import run_micro_batches
from hf_elastic.training.processes import any_process, average_gradients
from hf_elastic.training.resource_arguments import ResourceArguments
from hf_elastic.training.resource_callback import ResourceCallback
from tests.training.cases import GradientRecorder, collate, make_model, make_rows


@dataclass(repr=False)
class Arguments(ResourceArguments, ElasticTrainingArguments):
    """Training arguments with those of resources."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_resources()


class MicroBatchTrainer(ElasticTrainer):
    """Runs each batch in micro-batches, and tells resource callbacks what a step has run.

    `before_part` is called before each of them and may raise.
    """

    before_part: Callable[[Batch], None] = staticmethod(lambda part: None)

    def resource_callbacks(self) -> list[ResourceCallback]:
        return [callback for callback in self.callback_handler.callbacks if isinstance(callback, ResourceCallback)]

    def training_step(self, model, inputs, num_items_in_batch=None):
        inputs = self._prepare_inputs(inputs)
        rows = len(token_mask(inputs))
        adapt = next((c for c in self.resource_callbacks() if isinstance(c, AdaptMicroBatchSize)), None)
        run = super().training_step

        def step(part: dict[str, Any], last: bool) -> torch.Tensor:
            self.before_part(part)
            if last or self.args.world_size == 1:
                return run(model, part, num_items_in_batch)
            with self._gathering_gradients(model):
                return run(model, part, num_items_in_batch)

        def retry(size: int) -> int:
            model.zero_grad()
            return adapt.rule.run_out(size)

        if adapt is None:
            loss = run_micro_batches(inputs, step, self.args.micro_batch_size or rows)
        else:
            agree = partial(any_process, device=self.args.device) if self.args.world_size > 1 else None
            loss = run_micro_batches(inputs, step, adapt.rule.size, retry, agree)
            average_gradients(model.parameters())
        drawn = self.sampler.draw(self.state.global_step)
        passes = sum(self.sampler.sizes[name] for name in drawn) / self.sampler.sizes[self.full_name]
        for callback in self.resource_callbacks():
            callback.on_examples(rows * self.args.world_size, passes)
        return loss

    def log(self, logs, start_time=None):
        if "loss" in logs:
            for callback in self.resource_callbacks():
                logs.update(callback.logs())
        super().log(logs, start_time)


def make_micro_batch_trainer(
    output_dir: str | Path,
    case: str = "classification",
    settings: dict[str, Any] | None = None,
    cls: type[MicroBatchTrainer] = MicroBatchTrainer,
    **keywords: Any,
) -> MicroBatchTrainer:
    """As `make_trainer` of the other cases."""
    defaults = {
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "max_grad_norm": 0.0,
        "restore_callback_states_from_checkpoint": True,
    }
    return cls(
        **{
            "model": keywords.pop("model", None) or make_model(case),
            "args": Arguments(str(output_dir), **{**defaults, **(settings or {})}),
            "train_dataset": make_rows(case, 64),
            "eval_dataset": make_rows(case, 16, seed=1),
            "data_collator": collate,
            **keywords,
        }
    )


def train_in_micro_batches(
    output_dir: str | Path,
    case: str = "classification",
    callbacks: list[Any] | None = None,
    rows: int = 64,
    data_collator: Callable = collate,
    model: torch.nn.Module | None = None,
    **settings: Any,
) -> tuple[MicroBatchTrainer, list[dict[str, torch.Tensor]]]:
    """Trains a case, and gives the trainer and the gradients of each step."""
    recorder = GradientRecorder()
    trainer = make_micro_batch_trainer(
        output_dir,
        case,
        settings,
        callbacks=[*(callbacks or []), recorder],
        train_dataset=make_rows(case, rows),
        data_collator=data_collator,
        model=model,
    )
    trainer.train()
    return trainer, recorder.steps
