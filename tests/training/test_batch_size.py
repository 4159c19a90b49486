import itertools
import json
import logging

import pytest
import torch

from hf_elastic.training.batch_size import AdaptMicroBatchSize, MicroBatchSize
from hf_elastic.training.callbacks import find_callback
from tests.training.cases import logged, make_trainer, train

BELOW, AT, ABOVE = 0.5, 0.8, 0.9


def sizes(rule, shares, most=100):
    return [rule.observe(share, threshold=0.8, most=most) for share in shares]


def test_grows_after_three_steps_in_a_row_under_the_threshold():
    assert sizes(MicroBatchSize(10), [BELOW] * 7) == [10, 10, 12, 12, 12, 14, 14]


def test_shrinks_at_once_above_the_threshold():
    assert sizes(MicroBatchSize(10), [ABOVE] * 9) == [8, 7, 6, 5, 4, 3, 2, 1, 1]


@pytest.mark.parametrize("between", [AT, ABOVE])
def test_three_steps_have_to_be_in_a_row(between):
    rule = MicroBatchSize(10)
    assert max(sizes(rule, [BELOW, BELOW, between] * 4)) <= 10


def test_at_the_threshold_nothing_changes():
    assert sizes(MicroBatchSize(10), [AT] * 5) == [10] * 5


@pytest.mark.parametrize("size", range(1, 40))
def test_changes_are_a_fifth_and_at_least_one(size):
    change = max(1, size // 5)
    assert sizes(MicroBatchSize(size), [BELOW] * 3)[-1] == size + change
    assert sizes(MicroBatchSize(size), [ABOVE]) == [max(1, size - change)]


def test_never_exceeds_the_batch():
    assert max(sizes(MicroBatchSize(10), [BELOW] * 30, most=13)) == 13


def test_running_out_halves():
    rule = MicroBatchSize(13)
    assert [rule.run_out(13), rule.run_out(6), rule.run_out(3)] == [6, 3, 1]
    assert rule.failed == 3
    with pytest.raises(torch.OutOfMemoryError, match="micro_batch_size=1.*shrink no further.*max_length"):
        rule.run_out(1)


@pytest.mark.parametrize("failed", range(2, 20))
def test_a_size_that_ran_out_is_never_tried_again(failed):
    """In no sequence of six observations."""
    for shares in itertools.product([BELOW, AT, ABOVE], repeat=6):
        rule = MicroBatchSize(failed)
        rule.run_out(failed)
        assert all(1 <= size < failed for size in sizes(rule, shares * 3))


ADAPTS = {"adapt_micro_batch_size": True, "per_device_train_batch_size": 16, "sampling": "one_per_step"}


def test_follows_the_memory_of_a_training(tmp_path):
    """The machine has room for a tiny model, and a threshold that is always passed has not."""
    roomy, _ = train(tmp_path, **ADAPTS, max_steps=8, memory_threshold=1.0, micro_batch_size=4)
    tight, _ = train(tmp_path, **ADAPTS, max_steps=8, memory_threshold=1e-6)
    assert logged(roomy, "micro_batch_size") == [4, 4, 5, 5, 5, 6, 6, 6]
    assert logged(tight, "micro_batch_size") == [13, 11, 9, 8, 7, 6, 5, 4]


def test_resumes_with_what_it_has_learned(tmp_path):
    settings = {**ADAPTS, "memory_threshold": 1.0, "micro_batch_size": 4, "max_steps": 10}
    settings |= {"save_strategy": "steps", "save_steps": 5}
    first, _ = train(tmp_path, **settings)
    second = make_trainer(tmp_path, settings=settings)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert rule_of(second) == rule_of(first) == MicroBatchSize(7, failed=None, steps_below=1)
    saved = json.loads((tmp_path / "checkpoint-5/trainer_state.json").read_text())["stateful_callbacks"]
    assert saved["AdaptMicroBatchSize"]["args"] == {
        **{"size": 5, "failed": None, "steps_below": 2},
        "begun_at": 4,
    }


@pytest.mark.parametrize(("given", "expected"), [(2, [2, 2, 3]), (16, [16, 16, 16]), (None, [9, 10, 10])])
def test_a_resumed_training_may_begin_at_another_size(tmp_path, given, expected):
    """A size of 9 is what the checkpoint has; without one that is given, it goes on."""
    settings = {**ADAPTS, "memory_threshold": 1.0, "micro_batch_size": 8, "max_steps": 4}
    train(tmp_path, **settings, save_strategy="steps", save_steps=4)
    settings |= {"micro_batch_size": given, "max_steps": 7}
    resumed = make_trainer(tmp_path, settings=settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert logged(resumed, "micro_batch_size")[-3:] == expected


def test_a_new_training_begins_afresh(tmp_path):
    trainer = make_trainer(tmp_path, settings={**ADAPTS, "max_steps": 1})
    rule_of(trainer).failed = 3
    trainer.train()
    assert rule_of(trainer).failed is None
    assert rule_of(trainer).size == 16


def test_decisions_are_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="hf_elastic"):
        train(tmp_path, **ADAPTS, max_steps=1, memory_threshold=1e-6)
    assert "micro_batch_size 16 to 13" in caplog.text


def rule_of(trainer):
    return find_callback(trainer, AdaptMicroBatchSize).rule
