"""DeepSpeed's CPU accelerator gives the losses and weights of one process, whatever is split."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from tests.training import deepspeed_worker
from tests.training.cases import losses_of, make_trainer
from tests.training.distributed_worker import in_two_processes
from tests.training.launching import launch_two_processes

STEPS = {"max_steps": 3, "optim": "sgd", "learning_rate": 0.05, "weight_decay": 0.1, "optim_args": "momentum=0.9"}
RUNS = {
    f"ZeRO-{stage}, {name}": (stage, {**STEPS, **settings})
    for stage in (0, 2, 3)
    for name, settings in {
        "sandwich": {"sampling": "sandwich"},
        "one_per_step": {"sampling": "one_per_step", "layer_drop": 0.3},
        "activation checkpointing": {"sampling": "joint", "activation_checkpointing": True},
    }.items()
}
# Which takes the gradients of an earlier step for layers that no pass of a step runs, and is therefore an error.
del RUNS["ZeRO-3, one_per_step"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs pip install deepspeed"),
]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs, in one start of two processes."""
    folder = tmp_path_factory.mktemp("deepspeed")
    runs = {name: (stage, in_two_processes(settings)) for name, (stage, settings) in RUNS.items()}
    (folder / "runs.json").write_text(json.dumps(runs))
    # A build that was interrupted leaves a lock behind, which others wait for.
    extensions = os.environ.get("TORCH_EXTENSIONS_DIR", str(folder / "extensions"))
    variables = {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": extensions}
    runs_file = str(folder / "runs.json")
    result = launch_two_processes(deepspeed_worker.__file__, runs_file, log_dir=folder / "log", **variables)
    assert result.returncode == 0, result.stderr[-4000:]
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_equal_one(two_processes, tmp_path, name):
    whole = make_trainer(tmp_path, settings={**RUNS[name][1], "per_device_train_batch_size": 16})
    whole.train()
    metrics = {key: value for key, value in whole.evaluate().items() if key.endswith("loss")}
    results = json.loads((two_processes / name / "results.json").read_text())
    for ours, theirs in zip(results, [*losses_of(whole), metrics], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    saved = AutoModelForSequenceClassification.from_pretrained(two_processes / name)
    for key, value in whole.model.state_dict().items():
        torch.testing.assert_close(saved.state_dict()[key], value, rtol=1e-4, atol=1e-5)
