"""Two processes compute what one does: gradients, losses, weights and metrics."""

import pytest
import torch

from tests.training.cases import assert_same_gradients
from tests.training.distributed_worker import RUNS, run


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_equal_one(two_processes, tmp_path, name):
    actual = two_processes[0]["trainings"][name]
    batches = {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 16}
    expected = run(tmp_path, {**RUNS[name], **batches})
    assert (actual["processes"], expected["processes"]) == (2, 1)
    assert_same_gradients(actual["gradients"], expected["gradients"])
    for ours, theirs in zip(actual["losses"], expected["losses"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    for key, value in expected["weights"].items():
        torch.testing.assert_close(actual["weights"][key], value, rtol=1e-4, atol=1e-5)
    assert actual["metrics"] == pytest.approx(expected["metrics"], rel=1e-4)
