"""Processes that decide alike, and gradients that are reduced after a step instead of within it."""

import torch

from hf_elastic.training.processes import any_process, average_gradients, max_over_processes
from tests.training import scarce_resources
from tests.training.cases import assert_same_gradients, train

CPU = torch.device("cpu")


def test_one_process_decides_for_itself():
    assert any_process(True, CPU) is True
    assert any_process(False, CPU) is False
    assert max_over_processes(0.25, CPU) == 0.25
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full((2,), 3.0)
    average_gradients([weight])
    assert weight.grad.tolist() == [3.0, 3.0]


def test_where_one_process_runs_out_of_memory_all_repeat(two_processes, tmp_path):
    _, expected = train(tmp_path, per_device_train_batch_size=16, **scarce_resources.SETTINGS)
    assert_same_gradients(two_processes[0]["scarce resources"]["gradients"], expected)


def test_all_processes_decide_alike(two_processes):
    first, second = (each["scarce resources"]["decisions"] for each in two_processes)
    assert first == second == (2, 4, 1)  # rows at once, rows that ran out, the step that the budget ended at
