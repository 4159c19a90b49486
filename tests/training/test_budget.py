import pytest

from hf_elastic.training.budget import TrainingBudget
from tests.training.resource_cases import make_micro_batch_trainer, train_in_micro_batches

STEPS = {"per_device_train_batch_size": 8, "num_train_epochs": 4}


def test_ends_at_the_step_that_passes_the_examples(tmp_path):
    budget = TrainingBudget()
    trainer, _ = train_in_micro_batches(tmp_path, callbacks=[budget], max_examples=20, **STEPS)
    assert trainer.state.global_step == 3
    assert budget.examples == 24


def test_ends_at_the_step_that_passes_the_time(tmp_path):
    trainer, _ = train_in_micro_batches(tmp_path, callbacks=[TrainingBudget()], max_minutes=1e-9, **STEPS)
    assert trainer.state.global_step == 1


def test_without_a_limit_it_runs_to_the_end(tmp_path):
    budget = TrainingBudget()
    trainer, _ = train_in_micro_batches(tmp_path, callbacks=[budget], max_minutes=60.0, **STEPS)
    assert trainer.state.global_step == 32
    assert budget.examples == 4 * 64
    assert budget.seconds > 0


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
    trainer, _ = train_in_micro_batches(tmp_path, callbacks=[TrainingBudget()], **settings)
    evaluations = [log for log in trainer.state.log_history if "eval_mean_loss" in log]
    assert [log["step"] for log in evaluations] == {"steps": [2, 3], "epoch": [3]}[strategy]
    assert (tmp_path / "checkpoint-3").is_dir()
    best = min(evaluations, key=lambda log: log["eval_mean_loss"])
    assert trainer.evaluate()["eval_mean_loss"] == pytest.approx(best["eval_mean_loss"], rel=1e-5)


def test_without_evaluation_and_saving_there_is_none(tmp_path):
    trainer, _ = train_in_micro_batches(tmp_path, callbacks=[TrainingBudget()], max_examples=8, **STEPS)
    assert not any("eval_loss" in log for log in trainer.state.log_history)
    assert not list(tmp_path.glob("checkpoint-*"))


def test_resumes_with_what_is_left(tmp_path):
    settings = {**STEPS, "save_strategy": "steps", "save_steps": 2, "max_examples": 40}
    first = make_micro_batch_trainer(tmp_path, settings=settings, callbacks=[TrainingBudget()])
    first.train()
    assert first.state.global_step == 5
    second = make_micro_batch_trainer(tmp_path, settings=settings, callbacks=[TrainingBudget])
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert second.state.global_step == 5
    more = {**settings, "max_examples": 64}
    third = make_micro_batch_trainer(tmp_path, settings=more, callbacks=[TrainingBudget])
    third.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert third.state.global_step == 8
    budget = next(c for c in third.callback_handler.callbacks if isinstance(c, TrainingBudget))
    assert budget.seconds > first.state.stateful_callbacks["TrainingBudget"]["attributes"]["seconds"] > 0
