"""Processes that decide alike, and gradients that are reduced after a step instead of within it."""

import os
import subprocess
import sys

import pytest
import torch

from hf_elastic.training.processes import any_process, average_gradients, max_over_processes
from tests.training import resource_worker
from tests.training.cases import assert_same_gradients, train
from tests.training.test_trainer_distributed import free_port, repository

CPU = torch.device("cpu")


def test_one_process_decides_for_itself():
    assert any_process(True, CPU) is True
    assert any_process(False, CPU) is False
    assert max_over_processes(0.25, CPU) == 0.25
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full((2,), 3.0)
    average_gradients([weight])
    assert weight.grad.tolist() == [3.0, 3.0]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command += ["--master_port", str(free_port()), "--log-dir", str(folder), resource_worker.__file__, str(folder)]
    result = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(repository()), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return torch.load(folder / "results.pt", weights_only=True)


def test_where_one_process_runs_out_of_memory_all_repeat(two_processes, tmp_path):
    _, expected = train(tmp_path, per_device_train_batch_size=16, **resource_worker.SETTINGS)
    assert_same_gradients(two_processes["gradients"], expected)


def test_all_processes_decide_alike(two_processes):
    first, second = two_processes["decisions"]
    assert first == second == (2, 4, 1)  # rows at once, rows that ran out, the step that the budget ended at
