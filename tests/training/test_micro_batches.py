"""Micro-batches against the whole batch, and steps that run out of memory against steps that do not."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_elastic.training.batch_size import AdaptMicroBatchSize
from hf_elastic.training.callbacks import find_callback
from hf_elastic.training.loss_guard import LossGuard
from hf_elastic.training.micro_batches import is_out_of_memory, run_micro_batches
from hf_elastic.training.subnet_weights import RunningLosses
from tests.training import limited_worker
from tests.training.cases import (
    CASES,
    NAMES,
    LittleRoom,
    assert_same_gradients,
    collate,
    losses_of,
    make_model,
    make_trainer,
    train,
)

STEPS = {"sampling": "joint", "max_steps": 2, "learning_rate": 0.0, "per_device_train_batch_size": 16}


def train_with_room(folder: Path, room: int, **settings):
    """Trains where more rows than `room` run out of memory; gives what `train` does, and the sizes that were tried."""
    model = make_model("classification")
    little = LittleRoom(model, room)
    return *train(folder, model=model, adapt_micro_batch_size=True, **settings), little.sizes


@pytest.mark.parametrize("case", CASES)
def test_micro_batches_change_neither_gradients_nor_losses(tmp_path, case):
    whole, expected = train(tmp_path, case, **STEPS)
    parts, actual = train(tmp_path, case, micro_batch_size=3, **STEPS)
    assert_same_gradients(actual, expected)
    for ours, theirs in zip(losses_of(parts), losses_of(whole), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("case", ["classification", "masked_lm", "question_answering"])
def test_padding_that_is_cut_off_changes_no_gradient(tmp_path, case):
    def collate_too_long(rows):
        padding = {"labels": -100}
        batch = collate(rows)
        per_token = [name for name, value in batch.items() if value.dim() == 2]
        return batch | {
            name: torch.nn.functional.pad(batch[name], (0, 9), value=padding.get(name, 0)) for name in per_token
        }

    gradients = []
    for size in (16, 3):
        settings = {**STEPS, "micro_batch_size": size}
        trainer = make_trainer(tmp_path, case, settings, data_collator=collate_too_long)
        batch = next(iter(trainer.get_train_dataloader()))
        trainer.create_optimizer()
        _, number = trainer.get_batch_samples(iter([batch]), 1, trainer.args.device)
        trainer.state.max_steps = 1
        trainer.training_step(trainer.model, batch, number)
        gradients.append({name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None})
    assert_same_gradients([gradients[1]], [gradients[0]])


@pytest.mark.parametrize("room", [9, 3, 1])
def test_a_step_without_room_is_repeated_in_smaller_parts(tmp_path, room):
    whole, expected = train(tmp_path, **STEPS)
    trainer, actual, sizes = train_with_room(tmp_path, room, **STEPS)
    assert_same_gradients(actual, expected)
    tried = {9: [16, 8], 3: [16, 8, 4, 2], 1: [16, 8, 4, 2, 1]}[room]
    assert list(dict.fromkeys(sizes)) == tried
    assert sizes.count(16) == 1  # the second step begins with what the first one came to
    assert find_callback(trainer, AdaptMicroBatchSize).rule.failed == tried[-2]
    for ours, theirs in zip(losses_of(trainer), losses_of(whole), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)


def test_what_ran_before_running_out_counts_nowhere(tmp_path):
    """Neither in the running means of the losses, nor in what the guard compares, nor in statistics of activations."""
    settings = {**STEPS, "subnet_weighting": "by_loss", "spike_factor": 1e6, "statistics_steps": 1}
    parts, expected = train(tmp_path, micro_batch_size=8, **settings)
    trainer, actual, _ = train_with_room(tmp_path, 9, **settings)
    assert_same_gradients(actual, expected)
    means, losses = find_callback(parts, RunningLosses).means, find_callback(parts, LossGuard).recent_losses
    assert (len(means), len(losses)) == (len(NAMES), STEPS["max_steps"])
    assert find_callback(trainer, RunningLosses).means == pytest.approx(means)
    assert find_callback(trainer, LossGuard).recent_losses == pytest.approx(losses)
    activations = [
        [value for log in each.state.log_history for key, value in log.items() if key.startswith("activation")]
        for each in (trainer, parts)
    ]
    assert activations[0] == pytest.approx(activations[1])


@pytest.mark.parametrize("method", ["pcgrad", "upgrad"])
def test_surgery_on_a_step_that_is_repeated(tmp_path, method):
    pytest.importorskip("torchjd")
    settings = {**STEPS, "max_steps": 1, "gradient_conflicts": method}
    assert_same_gradients(train_with_room(tmp_path, 9, **settings)[1], train(tmp_path, **settings)[1])


def test_a_single_row_without_room_is_an_error_with_remedies(tmp_path):
    with pytest.raises(
        torch.OutOfMemoryError, match="micro_batch_size=1.*shrink no further.*activation_checkpointing"
    ):
        train_with_room(tmp_path, room=0, **STEPS)


def test_other_errors_are_not_repeated():
    calls = []

    def step(part, last):
        calls.append(part)
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        run_micro_batches({"input_ids": torch.ones(4, 2)}, step, size=2, retry=lambda size: size // 2)
    assert len(calls) == 1


def test_without_a_retry_running_out_is_an_error():
    def step(part, last):
        raise torch.OutOfMemoryError("full")

    with pytest.raises(torch.OutOfMemoryError, match="full"):
        run_micro_batches({"input_ids": torch.ones(4, 2)}, step, size=2)


def test_a_repeated_step_draws_the_same_random_numbers():
    drawn = []

    def step(part, last):
        drawn.append((len(part["input_ids"]), torch.rand(1).item(), random.random(), np.random.rand()))
        if len(part["input_ids"]) > 2:
            raise MemoryError
        return torch.tensor(1.0)

    loss = run_micro_batches({"input_ids": torch.ones(4, 2)}, step, size=4, retry=lambda size: size // 2)
    assert loss == 2.0
    (_, *first), (_, *again), (_, *other) = drawn
    assert first == again != other


def test_the_pass_that_reduces_is_the_last_one_or_none():
    seen = []

    def step(part, last):
        seen.append(last)
        return torch.tensor(0.0)

    batch = {"input_ids": torch.ones(6, 2)}
    run_micro_batches(batch, step, size=2)
    run_micro_batches(batch, step, size=2, retry=lambda size: 1, agree=lambda failed: failed)
    assert seen == [False, False, True, False, False, False]


def test_memory_of_the_failed_pass_is_freed_before_the_next():
    alive = []

    class Activations:
        def __init__(self):
            alive.append(self)

        def __del__(self):
            alive.append("freed")

    def step(part, last):
        if len(part["input_ids"]) > 2:
            activations = Activations()
            alive.pop()
            raise MemoryError(activations and "full")
        assert alive[:1] == ["freed"]
        return torch.tensor(1.0)

    run_micro_batches({"input_ids": torch.ones(4, 2)}, step, size=4, retry=lambda size: size // 2)
    assert alive == ["freed"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("HIP out of memory."), True),
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: 8 bytes"),
            True,
        ),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("std::bad_alloc"), False),
    ],
)
def test_errors_that_say_that_memory_ran_out(error, expected):
    assert is_out_of_memory(error) is expected


def test_torch_itself_says_so_on_this_machine():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**48)
    assert is_out_of_memory(caught.value)


def test_recovers_under_a_real_limit(tmp_path):
    """In a process that may not have the memory of a whole batch."""
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    # A limit of address space also counts what the allocator keeps, or reserves for each thread.
    environment |= {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    result = subprocess.run(
        [sys.executable, limited_worker.__file__, str(tmp_path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    limited = torch.load(tmp_path / "limited.pt", weights_only=True)
    assert f"Out of memory with {limited_worker.ROWS} rows" in result.stderr
    assert limited["size"] < limited_worker.ROWS
    assert_same_gradients([limited["limited"]], [limited["free"]])
