import logging
import math
from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState

from hf_elastic.training.callbacks import find_callback
from hf_elastic.training.early_stopping import CostAwareEarlyStopping
from tests.training.cases import logged, make_arguments, make_rows, make_trainer


def stops_at(tmp_path, metrics, examples=50, passes=2.0, **settings):
    """The evaluation after which it stops; 100 examples of data, so that each evaluation costs one unit."""
    defaults = {"metric_for_best_model": "accuracy", "eval_strategy": "epoch", "early_stopping_patience": 2}
    args = make_arguments(tmp_path, **{**defaults, **settings})
    callback, state = CostAwareEarlyStopping(), TrainerState(max_steps=10)
    callback.on_train_begin(
        args, state, TrainerControl(), train_dataloader=SimpleNamespace(dataset=make_rows("classification", 100))
    )
    for i, metric in enumerate(metrics):
        callback.on_examples(examples, passes)
        control = TrainerControl()
        callback.on_evaluate(args, state, control, metrics={f"eval_{args.metric_for_best_model}": metric})
        if control.should_training_stop:
            return i
    return None


def test_stops_when_the_gain_falls_under_the_minimum(tmp_path):
    metrics = [0.1, 0.3, 0.5, 0.6, 0.61, 0.62, 0.7]
    # Over the last two evaluations: 0.2, 0.15, 0.055, 0.01 per unit.
    assert stops_at(tmp_path, metrics, early_stopping_min_gain=0.05) == 5
    assert stops_at(tmp_path, metrics, early_stopping_min_gain=0.1) == 4
    assert stops_at(tmp_path, metrics, early_stopping_min_gain=0.001) is None


def test_the_same_gain_for_twice_the_compute_is_half_of_it(tmp_path):
    metrics = [0.1, 0.2, 0.3, 0.4]
    assert stops_at(tmp_path, metrics, early_stopping_min_gain=0.06) is None
    assert stops_at(tmp_path, metrics, passes=4.0, early_stopping_min_gain=0.06) == 2
    assert stops_at(tmp_path, metrics, examples=100, early_stopping_min_gain=0.06) == 2


def test_smaller_may_be_better(tmp_path):
    settings = {"metric_for_best_model": "mean_loss", "early_stopping_min_gain": 0.05}
    assert stops_at(tmp_path, [0.9, 0.7, 0.5, 0.3], **settings) is None
    assert stops_at(tmp_path, [0.3, 0.5, 0.7, 0.9], **settings) == 2


def test_the_best_metric_counts_rather_than_the_last(tmp_path):
    assert stops_at(tmp_path, [0.1, 0.5, 0.2], early_stopping_min_gain=0.1) is None
    assert stops_at(tmp_path, [0.1, 0.5, 0.2, 0.4], early_stopping_min_gain=0.1) == 3


@pytest.mark.parametrize("metrics", [[0.5, math.nan, math.nan], [math.nan, math.nan, math.nan]])
def test_what_is_not_a_number_is_no_gain(tmp_path, metrics):
    assert stops_at(tmp_path, metrics, early_stopping_min_gain=0.01) == 2


def test_a_minimum_of_zero_stops_only_what_gains_less_than_nothing(tmp_path):
    assert stops_at(tmp_path, [0.5, 0.4, 0.3, 0.2], early_stopping_min_gain=0.0) is None


SETTINGS = {
    "eval_strategy": "steps",
    "eval_steps": 4,
    "metric_for_best_model": "mean_loss",
    "per_device_train_batch_size": 16,
    "early_stopping_min_gain": 0.5,
    "early_stopping_patience": 2,
    "learning_rate": 0.0,
    "num_train_epochs": 10,
    "sampling": "joint",
}


def stopping_of(trainer):
    return find_callback(trainer, CostAwareEarlyStopping)


def test_a_training_that_learns_nothing_stops(tmp_path):
    trainer = make_trainer(tmp_path, settings=SETTINGS)
    trainer.train()
    assert trainer.state.global_step == 12
    sizes = trainer.sampler.sizes
    passes = sum(sizes.values()) / sizes["large"]
    callback = stopping_of(trainer)
    assert callback.compute == pytest.approx(3 * passes)
    assert [compute for compute, _ in callback.history] == pytest.approx([passes, 2 * passes, 3 * passes])
    assert logged(trainer, "full_model_passes") == pytest.approx([passes * step / 4 for step in range(1, 13)])
    trainer.evaluate()  # outside of the training, at no cost
    assert len(callback.history) == 3


def test_it_is_told_in_words_that_the_user_has_used(tmp_path, caplog, monkeypatch):
    for name in ("transformers", "hf_elastic"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    trainer = make_trainer(tmp_path, settings=SETTINGS)
    trainer.train()
    told = stopping_of(trainer).ending
    assert told.startswith("early_stopping_min_gain=0.5 ended the training at step 12 of 40: mean_loss gained 0 per")
    assert told in caplog.messages
    assert "EarlyStoppingCallback" not in caplog.text


def test_after_the_last_step_there_is_nothing_to_stop(tmp_path):
    trainer = make_trainer(tmp_path, settings={**SETTINGS, "num_train_epochs": 3})
    trainer.train()
    assert trainer.state.global_step == 12
    assert stopping_of(trainer).ending is None


def test_resumes_with_its_history(tmp_path):
    settings = {**SETTINGS, "save_strategy": "steps", "save_steps": 4}
    first, second = (make_trainer(tmp_path, settings=settings) for _ in range(2))
    first.train()
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert second.state.global_step == first.state.global_step == 12
    ours, theirs = stopping_of(second).history, stopping_of(first).history
    assert len(theirs) == 3
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other)
