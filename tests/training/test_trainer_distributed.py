"""Two processes compute what one does: gradients, losses, weights and metrics."""

import importlib.util
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
# With a threshold that is always passed, so that each step has fewer rows at once than the one before.
ADAPTED = {"max_steps": 3, "adapt_micro_batch_size": True, "memory_threshold": 1e-6}
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
    "core gradient scale": {**STEPS, "core_gradient_scale": 0.5},
    "layer drop": {**STEPS, "layer_drop": 0.4},
    "shorter inputs": {**STEPS, "subnet_max_lengths": {"small": 8, "tiny": 5}},
    "relations": {**STEPS, "relation_weight": 1.0, "attention_weight": 0.5},
    "weights by loss": {**STEPS, "max_steps": 3, "subnet_weighting": "by_loss"},
    "schedules": {
        **STEPS,
        "max_steps": 3,
        "distillation_schedule": "linear",
        "distillation_weight_end": 0.3,
        "subnet_weighting": "toward_largest",
        "detachment_probability": 0.5,
    },
    "narrow teacher": {**STEPS, "max_steps": 3, "teacher": "Bert", "hidden_weight": 1.0},
    "group penalty": {**STEPS, "group_penalty": 0.01},
    "micro-batches": {**STEPS, "micro_batch_size": 3},
    "adapted micro-batches": {**STEPS, **ADAPTED},
    "one_per_step, adapted micro-batches": {**STEPS, **ADAPTED, "sampling": "one_per_step"},
    "average of the weights": {**STEPS, "max_steps": 3, "weight_averaging": "ema", "ema_decay": 0.5},
    "adaptive clipping": {**STEPS, "adaptive_clipping": 0.02},
    "percentile clipping": {**STEPS, "max_steps": 3, "percentile_clipping": 10},
    "learning rates by depth": {**STEPS, "layer_lr_decay": 0.5, "head_lr_multiplier": 3.0},
    # Exact only where all processes have as many units; of tokens they have not.
    "means per process": {**STEPS, "average_tokens_across_devices": False, "hidden_weight": 0.0},
}
if importlib.util.find_spec("torchjd"):
    RUNS["gradient surgery"] = {**STEPS, "gradient_conflicts": "pcgrad"}
    RUNS["gradient surgery, adapted micro-batches"] = {**STEPS, **ADAPTED, "gradient_conflicts": "pcgrad"}


def repository() -> Path:
    return Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def in_two_processes(run: dict[str, Any]) -> dict[str, Any]:
    """A run with batches of 4 in each of two processes, accumulated twice if it can."""
    steps = 1 if "adapt_micro_batch_size" in run else 2
    batches = {"per_device_train_batch_size": 8 // steps, "gradient_accumulation_steps": steps}
    return {**run, **batches, "per_device_eval_batch_size": 8}


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All runs, in one start of two processes."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "runs.json").write_text(json.dumps({name: in_two_processes(run) for name, run in RUNS.items()}))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command += ["--master_port", str(free_port()), "--log-dir", str(folder), distributed_worker.__file__]
    result = subprocess.run(
        [*command, str(folder / "runs.json"), str(folder / "results.pt")],
        env={**os.environ, "PYTHONPATH": str(repository()), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
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
