"""Trainings with batches that go wrong on purpose."""

from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from hf_elastic import ElasticTrainer
from hf_elastic.modeling.modeling_elastic import ElasticPreTrainedModel
from hf_elastic.training.callbacks import find_callback
from hf_elastic.training.loss_guard import LossGuard
from tests.training.cases import make_model, make_rows, make_trainer

NAN_ROW = {"input_ids": [7, 8, 9, 10], "labels": float("nan")}
BATCH = 4


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
    teachers: list[PreTrainedModel] | None = None,
    **settings: Any,
) -> ElasticTrainer:
    """One epoch over the rows in their order, at a constant learning rate."""
    defaults = {
        "num_train_epochs": 1,
        "max_grad_norm": 1.0,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
        "sampling": "joint",
    }
    return make_trainer(
        output_dir,
        "regression",
        {**defaults, **settings},
        model=make_model("regression") if model is None else model,
        train_dataset=rows,
        eval_dataset=make_rows("regression", 8, seed=1),
        callbacks=callbacks,
        teachers=teachers,
    )


def guard_of(trainer: ElasticTrainer) -> LossGuard:
    """The guard of a trainer, which a resumed training makes anew."""
    return find_callback(trainer, LossGuard)


def weights_of(trainer: ElasticTrainer) -> dict[str, torch.Tensor]:
    """Copies of all weights."""
    return {name: value.detach().clone() for name, value in trainer.elastic_model.state_dict().items()}


def assert_same_weights(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Compares weights bit for bit."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name
