import pytest
import torch
from transformers import TrainerState

from hf_elastic.training.subnet_weights import MEMORY, RunningLosses, by_loss, toward_largest, uniform

NAMES = ["large", "base", "tiny"]


def test_uniform():
    assert uniform(NAMES, 0.5, {}) == {"large": 1.0, "base": 1.0, "tiny": 1.0}


@pytest.mark.parametrize(("progress", "expected"), [(0.0, [1, 1, 1]), (0.5, [1.25, 1, 0.75]), (1.0, [1.5, 1, 0.5])])
def test_toward_largest(progress, expected):
    assert list(toward_largest(NAMES, progress, {}).values()) == pytest.approx(expected)


@pytest.mark.parametrize("number", [1, 2, 7])
def test_the_mean_weight_stays_one(number):
    weights = toward_largest([str(i) for i in range(number)], 1.0, {})
    assert sum(weights.values()) / number == pytest.approx(1.0)


def test_by_loss():
    assert by_loss(NAMES, 0.0, {"large": 1.0, "base": 2.0, "tiny": 3.0}) == {"large": 0.5, "base": 1.0, "tiny": 1.5}


def test_losses_that_are_not_known_yet():
    assert by_loss(NAMES, 0.0, {"large": 1.0, "tiny": 3.0}) == {"large": 0.5, "base": 1.0, "tiny": 1.5}
    assert by_loss(NAMES, 0.0, {}) == by_loss(NAMES, 0.0, dict.fromkeys(NAMES, 0.0)) == uniform(NAMES, 0.0, {})


def test_running_losses():
    losses = RunningLosses()
    losses.add("large", torch.tensor(1.0))
    losses.add("large", torch.tensor(1.0))  # a second part of the batch
    losses.on_step_end(None, None, None)
    assert losses.means == {"large": 2.0}
    losses.on_step_end(None, None, None)
    losses.add("large", torch.tensor(1.0))
    losses.add("tiny", torch.tensor(5.0))
    losses.on_step_end(None, None, None)
    assert losses.means == pytest.approx({"large": MEMORY * 2 + (1 - MEMORY), "tiny": 5.0})


def test_running_losses_without_a_step_that_is_left_out():
    losses = RunningLosses({"large": 2.0})
    losses.add("large", torch.tensor(100.0))
    losses.forget_step()
    losses.on_step_end(None, None, None)
    assert losses.means == {"large": 2.0}


def test_running_losses_begin_anew_with_a_training():
    losses = RunningLosses({"large": 2.0})
    losses.add("large", torch.tensor(100.0))  # by a training that broke off
    losses.on_train_begin(None, TrainerState(), None)
    losses.on_step_end(None, None, None)
    assert losses.means == {}
    resumed = RunningLosses({"large": 2.0})
    resumed.on_train_begin(None, TrainerState(global_step=3), None)
    assert resumed.means == {"large": 2.0}


def test_running_losses_go_on_from_their_state():
    losses = RunningLosses({"large": 2.0})
    again = RunningLosses(**losses.state()["args"])
    assert again.means == {"large": 2.0} and again.means is not losses.means
