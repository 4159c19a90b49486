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
from hf_elastic.training.micro_batches import is_out_of_memory, run_micro_batches
from tests.training import limited_worker
from tests.training.cases import CASES, assert_same_gradients, collate, losses_of
from tests.training.resource_cases import MicroBatchTrainer, make_micro_batch_trainer, train_in_micro_batches

STEPS = {"sampling": "joint", "max_steps": 2, "learning_rate": 0.0, "per_device_train_batch_size": 16}


class Failing:
    """Fails with more rows than there is room for."""

    def __init__(self, room: int) -> None:
        self.room, self.sizes = room, []

    def __call__(self, part) -> None:
        self.sizes.append(len(part["input_ids"]))
        if self.sizes[-1] > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def train_with_room(folder: Path, room: int, case: str = "classification", **settings):
    """Trains where more rows than `room` run out of memory."""
    failing = Failing(room)
    MicroBatchTrainer.before_part = staticmethod(failing)
    try:
        callbacks = [AdaptMicroBatchSize()]
        return (*train_in_micro_batches(folder, case, callbacks, adapt_micro_batch_size=True, **settings), failing)
    finally:
        MicroBatchTrainer.before_part = staticmethod(lambda part: None)


@pytest.mark.parametrize("case", CASES)
def test_micro_batches_change_neither_gradients_nor_losses(tmp_path, case):
    whole, expected = train_in_micro_batches(tmp_path, case, **STEPS)
    parts, actual = train_in_micro_batches(tmp_path, case, micro_batch_size=3, **STEPS)
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
        trainer = make_micro_batch_trainer(tmp_path, case, settings, data_collator=collate_too_long)
        batch = next(iter(trainer.get_train_dataloader()))
        trainer.create_optimizer()
        _, number = trainer.get_batch_samples(iter([batch]), 1, trainer.args.device)
        trainer.state.max_steps = 1
        trainer.training_step(trainer.model, batch, number)
        gradients.append({name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None})
    assert_same_gradients([gradients[1]], [gradients[0]])


@pytest.mark.parametrize("room", [9, 3, 1])
def test_a_step_without_room_is_repeated_in_smaller_parts(tmp_path, room):
    _, expected = train_in_micro_batches(tmp_path, **STEPS)
    trainer, actual, failing = train_with_room(tmp_path, room, **STEPS)
    assert_same_gradients(actual, expected)
    tried = {9: [16, 8], 3: [16, 8, 4, 2], 1: [16, 8, 4, 2, 1]}[room]
    assert list(dict.fromkeys(failing.sizes)) == tried
    assert failing.sizes.count(16) == 1  # the second step begins with what the first one came to
    adapt = next(c for c in trainer.callback_handler.callbacks if isinstance(c, AdaptMicroBatchSize))
    assert adapt.rule.failed == tried[-2]


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
