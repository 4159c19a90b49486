"""Learned projections in a training: optimized, resumed, and no part of the model."""

import pytest
import torch
from torch.optim.lr_scheduler import OneCycleLR, StepLR
from transformers import AutoModelForSequenceClassification

from hf_elastic.training.projection_training import PROJECTIONS_NAME, projections_for
from hf_elastic.training.teachers import Teacher
from tests.training.cases import make_model, make_trainer
from tests.training.teacher_cases import make_teacher

SETTINGS = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "sampling": "joint", "hidden_weight": 1.0}


def run(folder, **settings):
    trainer = make_trainer(folder, teachers=[make_teacher()], settings={**SETTINGS, **settings})
    return trainer


def projection(trainer) -> torch.Tensor:
    return trainer.projection_training.projections.weights["0"]


def test_which_teachers_need_one():
    narrow, equal = make_teacher(), make_teacher(hidden_size=32, num_attention_heads=4)
    assert projections_for([Teacher(equal), Teacher(narrow, inputs="own_")], 32, seed=0) is None
    assert projections_for([Teacher(equal), Teacher(narrow)], 32, seed=0).teacher_sizes == (32, 16)


def test_they_are_trained_beside_the_model(tmp_path):
    trainer = run(tmp_path)
    before = projection(trainer).clone()
    trainer.train()
    assert (projection(trainer) - before).abs().max() > 0
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "checkpoint-4")
    assert saved.state_dict().keys() == trainer.model.state_dict().keys()
    trainer.save_model(tmp_path / "final")
    assert not (tmp_path / "final" / PROJECTIONS_NAME).exists()


def test_gradients_are_those_of_one_step(tmp_path):
    """Accumulated over its micro-batches, and not over steps."""
    gradients = []
    for settings in ({"per_device_train_batch_size": 8}, {"gradient_accumulation_steps": 2}):
        settings = {"per_device_train_batch_size": 4, "learning_rate": 0.0, "save_strategy": "no", **settings}
        trainer = run(tmp_path, **settings)
        trainer.train()
        gradients.append(projection(trainer).grad)
    torch.testing.assert_close(*gradients)


def test_resume(tmp_path):
    whole = run(tmp_path / "whole")
    whole.train()
    first = run(tmp_path / "parts")
    first.train()
    again = run(tmp_path / "parts")
    again.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2"))
    assert torch.equal(projection(again), projection(whole))


def test_resume_with_other_teachers(tmp_path):
    run(tmp_path).train()
    trainer = make_trainer(tmp_path, teachers=[make_teacher(hidden_size=24)], settings=SETTINGS)
    with pytest.raises(ValueError, match="not trained with these teachers.*Resume with the same teachers"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("schedule", [StepLR, OneCycleLR, None])
def test_with_an_optimizer_and_a_schedule_that_are_given(tmp_path, schedule, is_named):
    """They learn as the optimizer's first group does, and the schedule goes on."""
    model = make_model("classification")
    optimizer = torch.optim.AdamW(model.named_parameters() if is_named else model.parameters(), lr=1e-2)
    settings = {StepLR: {"step_size": 1, "gamma": 0.5}, OneCycleLR: {"max_lr": 1e-2, "total_steps": 20}}
    given = (optimizer, None if schedule is None else schedule(optimizer, **settings[schedule]))
    trainer = make_trainer(
        tmp_path,
        model=model,
        teachers=[make_teacher()],
        optimizers=given,
        settings={**SETTINGS, "lr_scheduler_type": "constant", "save_strategy": "no"},
    )
    before = projection(trainer).clone()
    for _ in range(2):
        trainer.train()
    assert (projection(trainer) - before).abs().max() > 1e-3
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert len(trained) == len(set(trained)) == len(list(model.parameters())) + 1
    if schedule is StepLR:
        assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-2 * 0.5**8)
