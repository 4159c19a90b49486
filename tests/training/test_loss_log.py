import pytest
import torch

from hf_elastic.training.loss_log import LossLog


def test_parts_of_a_step_are_added_and_steps_averaged():
    log = LossLog()
    for step, part in [(0, 1.0), (0, 2.0), (1, 5.0)]:
        log.add("large", step, torch.tensor(part, requires_grad=True))
    log.add("small", 1, torch.tensor(4.0))
    means = log.pop_means()
    assert {name: value.item() for name, value in means.items()} == pytest.approx({"large": 4.0, "small": 4.0})
    assert not means["large"].requires_grad


def test_a_mean_is_given_once():
    log = LossLog()
    log.add("large", 0, torch.tensor(1.0))
    log.pop_means()
    assert log.pop_means() == {}
