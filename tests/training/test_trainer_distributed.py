"""Two processes compute what one does: gradients, losses, weights and metrics."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training import distributed_worker
from tests.training.cases import assert_same_gradients

STEPS = {"max_steps": 2, "sampling": "sandwich", "temperature": 2.0}
# SGD, because Adam turns the rounding errors of a zero gradient into steps of full size. The learning rate and the
# weight decay make the weights depend on which parameters have a gradient at all.
STEPS |= {"optim": "sgd", "learning_rate": 0.05, "weight_decay": 0.1, "optim_args": "momentum=0.9"}
RUNS: dict[str, dict[str, Any]] = {
    **{sampling: {**STEPS, "sampling": sampling} for sampling in ("joint", "sandwich", "one_per_step")},
    **{
        f"{case}, teacher": {**STEPS, "case": case, "teacher": True}
        for case in ("regression", "masked_lm", "question_answering")
    },
    "activation checkpointing": {**STEPS, "activation_checkpointing": True},
    "one_per_step, activation checkpointing": {
        **STEPS,
        "sampling": "one_per_step",
        "activation_checkpointing": True,
    },
    # Exact only where all processes have as many units; of tokens they have not.
    "means per process": {**STEPS, "average_tokens_across_devices": False, "hidden_weight": 0.0},
}


def repository() -> Path:
    return Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All runs with batches of 4 in each of two processes, accumulated twice."""
    folder = tmp_path_factory.mktemp("two")
    batches = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "per_device_eval_batch_size": 8}
    (folder / "runs.json").write_text(json.dumps({name: {**run, **batches} for name, run in RUNS.items()}))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command += ["--master_port", str(free_port()), "--log-dir", str(folder), distributed_worker.__file__]
    result = subprocess.run(
        [*command, str(folder / "runs.json"), str(folder / "results.pt")],
        env={**os.environ, "PYTHONPATH": str(repository()), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return torch.load(folder / "results.pt", weights_only=True)


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_equal_one(two_processes, tmp_path, name):
    actual = two_processes[name]
    batches = {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 16}
    expected = distributed_worker.run(tmp_path, {**RUNS[name], **batches})
    assert (actual["processes"], expected["processes"]) == (2, 1)
    assert_same_gradients(actual["gradients"], expected["gradients"])
    for ours, theirs in zip(actual["losses"], expected["losses"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    for key, value in expected["weights"].items():
        torch.testing.assert_close(actual["weights"][key], value, rtol=1e-4, atol=1e-5)
    assert actual["metrics"] == pytest.approx(expected["metrics"], rel=1e-4)
