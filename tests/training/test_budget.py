import logging

import pytest

from hf_elastic.training.budget import TrainingBudget
from hf_elastic.training.callbacks import find_callback
from tests.training.cases import make_trainer, train

STEPS = {"per_device_train_batch_size": 8, "num_train_epochs": 2, "sampling": "one_per_step"}


def budget_of(trainer):
    return find_callback(trainer, TrainingBudget)


def test_ends_at_the_step_that_passes_the_examples(tmp_path):
    trainer, _ = train(tmp_path, max_examples=20, **STEPS)
    assert trainer.state.global_step == 3
    assert budget_of(trainer).examples == 24


def test_the_examples_of_an_accumulated_step_count_once(tmp_path):
    trainer, _ = train(tmp_path, max_examples=33, gradient_accumulation_steps=2, **STEPS)
    assert trainer.state.global_step == 3
    assert budget_of(trainer).examples == 48


def test_ends_at_the_step_that_passes_the_time(tmp_path):
    trainer, _ = train(tmp_path, max_minutes=1e-9, **STEPS)
    assert trainer.state.global_step == 1


def test_within_the_limit_it_runs_to_the_end(tmp_path):
    trainer, _ = train(tmp_path, max_minutes=60.0, **STEPS)
    assert trainer.state.global_step == 16
    assert budget_of(trainer).examples == 2 * 64
    assert budget_of(trainer).seconds > 0


def test_an_end_by_the_budget_is_told(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("hf_elastic"), "propagate", True)
    trainer, _ = train(tmp_path, max_examples=20, max_minutes=60.0, **STEPS)
    told = (
        "max_minutes=60.0 and max_examples=20 ended the training at step 3 of 16, after 0.0 minutes and 24 examples."
    )
    assert budget_of(trainer).ending == told
    assert [record.levelname for record in caplog.records if record.getMessage() == told] == ["WARNING"]
    trainer.args.max_examples = 200
    trainer.train()
    assert budget_of(trainer).ending is None


def test_without_a_limit_there_is_no_budget(tmp_path):
    assert budget_of(make_trainer(tmp_path)) is None


@pytest.mark.parametrize("strategy", ["steps", "epoch"])
def test_ends_evaluated_saved_and_with_the_best_model(tmp_path, strategy):
    settings = {
        "max_examples": 24,
        "eval_strategy": strategy,
        "save_strategy": strategy,
        "eval_steps": 2,
        "save_steps": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": "mean_loss",
        "learning_rate": 1e-3,
        **STEPS,
    }
    trainer, _ = train(tmp_path, **settings)
    evaluations = [log for log in trainer.state.log_history if "eval_mean_loss" in log]
    assert [log["step"] for log in evaluations] == {"steps": [2, 3], "epoch": [3]}[strategy]
    assert (tmp_path / "checkpoint-3").is_dir()
    best = min(evaluations, key=lambda log: log["eval_mean_loss"])
    assert trainer.evaluate()["eval_mean_loss"] == pytest.approx(best["eval_mean_loss"], rel=1e-5)


def test_without_evaluation_and_saving_there_is_none(tmp_path):
    trainer, _ = train(tmp_path, max_examples=8, **STEPS)
    assert not any("eval_loss" in log for log in trainer.state.log_history)
    assert not list(tmp_path.glob("checkpoint-*"))


def test_resumes_with_what_is_left(tmp_path):
    settings = {**STEPS, "save_strategy": "steps", "save_steps": 2, "max_examples": 40}
    first = make_trainer(tmp_path, settings=settings)
    first.train()
    assert first.state.global_step == 5
    second = make_trainer(tmp_path, settings=settings)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert second.state.global_step == 5
    more = {**settings, "max_examples": 64}
    third = make_trainer(tmp_path, settings=more)
    third.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert third.state.global_step == 8
    assert budget_of(third).seconds > first.state.stateful_callbacks["TrainingBudget"]["attributes"]["seconds"] > 0
