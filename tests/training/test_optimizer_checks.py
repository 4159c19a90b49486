"""Learning rates that would not reach the optimizer, and schedules that cannot go with growing batches, are errors."""

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, StepLR

from tests.training.cases import make_model, make_rows, make_trainer

GROWING = {"adapt_micro_batch_size": True, "keep_effective_batch": False, "max_examples": 32}
OWN_RATES = [
    {"layer_lr_decay": 0.9},
    {"head_lr_multiplier": 5.0},
    {"scale_lr_with_batch": True, "base_batch_size": 8},
]


def given(model, schedule=None) -> dict:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"optimizers": (optimizer, None if schedule is None else schedule(optimizer))}


@pytest.mark.parametrize("settings", OWN_RATES)
def test_learning_rates_of_an_optimizer_that_is_given(tmp_path, settings):
    output, model, (name, value) = tmp_path / "output", make_model("classification"), next(iter(settings.items()))
    with pytest.raises(ValueError, match=f"{name}={value} has no effect on the optimizer in optimizers"):
        make_trainer(output, model=model, settings=settings, **given(model))
    with pytest.raises(ValueError, match=f"{name}={value} has no effect on optimizer_cls_and_kwargs"):
        make_trainer(output, settings=settings, optimizer_cls_and_kwargs=(torch.optim.SGD, {"lr": 0.1}))
    assert not output.exists()


def test_an_optimizer_that_is_given_is_used(tmp_path):
    model = make_model("classification")
    make_trainer(tmp_path, model=model, settings={"max_steps": 1}, **given(model)).train()
    other = {"optimizer_cls_and_kwargs": (torch.optim.SGD, {"lr": 0.1})}
    trainer = make_trainer(tmp_path, settings={"max_steps": 1}, **other)
    trainer.train()
    assert isinstance(trainer.optimizer.optimizer, torch.optim.SGD)


@pytest.mark.parametrize("name", ["reduce_lr_on_plateau", "greedy"])
def test_schedules_that_count_steps_where_batches_grow(tmp_path, name):
    settings = {**GROWING, "lr_scheduler_type": name, "eval_strategy": "steps", "eval_steps": 1}
    with pytest.raises(TypeError, match="counts steps, whose number is unknown.*'linear'"):
        make_trainer(tmp_path / "output", settings=settings)
    assert not (tmp_path / "output").exists()
    make_trainer(tmp_path, settings={name: value for name, value in settings.items() if name not in GROWING})


def test_given_schedules_where_batches_grow(tmp_path):
    model, data = make_model("classification"), {"train_dataset": make_rows("classification", 16)}
    by_steps = given(model, lambda optimizer: StepLR(optimizer, step_size=2))
    with pytest.raises(TypeError, match="A StepLR counts steps"):
        make_trainer(tmp_path, model=model, settings=GROWING, **by_steps, **data)
    by_progress = given(model, lambda optimizer: LambdaLR(optimizer, lambda step: 0.5))
    make_trainer(tmp_path, model=model, settings=GROWING, **by_progress, **data).train()
