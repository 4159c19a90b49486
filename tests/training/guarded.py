"""A trainer with the loss guard and the statistics, and batches that go wrong on purpose."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hf_elastic import ElasticTrainer, ElasticTrainingArguments
from hf_elastic.modeling.modeling_elastic import ElasticPreTrainedModel
from hf_elastic.training.complete_checkpoints import choose_checkpoint
from hf_elastic.training.loss_guard import LossGuard
from hf_elastic.training.stability_arguments import StabilityArguments
from hf_elastic.training.training_statistics import TrainingStatistics
from tests.training.cases import collate, make_model, make_rows

NAN_ROW = {"input_ids": [7, 8, 9, 10], "labels": float("nan")}
BATCH = 4


@dataclass(repr=False)
class GuardedArguments(StabilityArguments, ElasticTrainingArguments):
    """The arguments of both."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_stability()


class GuardedTrainer(ElasticTrainer):
    """Calls the guard where it wants to be called."""

    def __init__(self, *positional: Any, **keywords: Any) -> None:
        super().__init__(*positional, **keywords)
        if self.args.on_bad_step != "ignore":
            self.add_callback(LossGuard())
        if self.args.statistics_steps:
            self.add_callback(TrainingStatistics(self.args.statistics_steps, self.log))

    def train(self, resume_from_checkpoint: str | bool | None = None, **keywords: Any) -> Any:
        if resume_from_checkpoint is True:
            resume_from_checkpoint = choose_checkpoint(self.args.output_dir, self.accelerator)
        return super().train(resume_from_checkpoint, **keywords)

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self.args.on_bad_step != "ignore":
            LossGuard.of(self).add_loss(loss)
        return loss

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        if self.args.on_bad_step != "ignore":
            LossGuard.of(self).check_step(self, norm)
        return norm


def make_batches(number: int, bad: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Rows of a regression, four to a batch; the last row of each bad batch has no number as its label."""
    rows = make_rows("regression", BATCH * number)
    for batch in bad:
        rows[BATCH * batch + BATCH - 1] = NAN_ROW
    return rows


def make_guarded_trainer(
    output_dir: str | Path,
    rows: list[dict[str, Any]],
    model: ElasticPreTrainedModel | None = None,
    callbacks: list[Any] | None = None,
    **settings: Any,
) -> GuardedTrainer:
    """One epoch over the rows in their order, at a constant learning rate."""
    defaults = {
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "num_train_epochs": 1,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
        "sampling": "joint",
    }
    return GuardedTrainer(
        model=make_model("regression") if model is None else model,
        args=GuardedArguments(str(output_dir), **{**defaults, **settings}),
        train_dataset=rows,
        eval_dataset=make_rows("regression", 8, seed=1),
        data_collator=collate,
        callbacks=callbacks,
    )


def weights_of(trainer: ElasticTrainer) -> dict[str, torch.Tensor]:
    """Copies of all weights."""
    return {name: value.detach().clone() for name, value in trainer.elastic_model.state_dict().items()}


def assert_same_weights(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Compares weights bit for bit."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name
