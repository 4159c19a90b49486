"""Running a batch in parts that fit into memory, and again in smaller ones where they did not."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from torch import Tensor
from transformers.utils import logging

from .batch_splitting import Batch, split_batch
from .distillation import token_mask

logger = logging.get_logger(__name__)

# How running out of memory is reported besides what accelerate knows: by cuBLAS, by C++ in general, and by oneDNN.
_MESSAGES = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
    "could not create a primitive",
    "could not create a memory object",
)


def run_micro_batches(
    batch: Batch,
    step: Callable[[dict[str, Any], bool], Tensor],
    size: int,
    retry: Callable[[int], int] | None = None,
    agree: Callable[[bool], bool] | None = None,
) -> Tensor:
    """Runs a training step over a batch, a part at a time, and adds up the losses.

    With losses that are sums divided by counts of the whole batch, the gradients that the parts add up to are those of
    the batch. Two things do depend on how it is cut: which units dropout draws, and the balance of experts, which
    compares the tokens that run together.

    A batch that runs out of memory is run again from the start, in smaller parts and with the same random numbers.

    Args:
        batch: Inputs of the model, on its device.
        step: Runs forward and backward of a part and gives its loss. The second argument says whether this is the
            pass after which processes reduce their gradients: the last part, or none with `agree`.
        size: The most rows that run at once.
        retry: Undoes what the parts have done, gets the size that was too large and gives a smaller one. Without it,
            running out of memory is an error like any other.
        agree: Says whether any process has failed, given whether this one has. With it, gradients must be reduced by
            the caller after the return: a process that failed halfway could not take part in it within the step,
            and the others would wait for it forever.

    Returns:
        The sum of the losses.

    References:
        The halving is that of toma (Kirsch 2020, https://github.com/BlackHC/toma), within a step.

    Example:
        >>> run_micro_batches({"input_ids": torch.ones(4, 2)}, lambda part, last: part["input_ids"].sum(), size=3)
        tensor(8.)
    """
    rewind = None if retry is None else remember_random_state(token_mask(batch).device)
    while True:
        loss, error = _run_once(batch, step, size, may_fail=retry is not None, reduces=agree is None)
        failed = error is not None
        if agree is not None:
            failed = agree(failed)
        if not failed:
            return loss
        del loss
        logger.warning(f"Out of memory with {size} rows at once ({error or 'another process'}). Repeating the step.")
        # Here rather than where the error is caught: its traceback holds on to all that the pass has made.
        clear_device_cache(garbage_collection=True)
        size = retry(size)
        rewind()


def _run_once(
    batch: Batch, step: Callable[[dict[str, Any], bool], Tensor], size: int, may_fail: bool, reduces: bool
) -> tuple[Tensor | None, str | None]:
    """The loss of a batch, or what went wrong with the memory."""
    parts = split_batch(batch, size)
    try:
        losses = [step(part, reduces and i == len(parts) - 1) for i, part in enumerate(parts)]
        return torch.stack(losses).sum(), None
    except Exception as error:
        if may_fail and is_out_of_memory(error):
            return None, str(error).strip().split("\n")[0] or type(error).__name__
        raise


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out, of the device or of the machine."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or should_reduce_batch_size(error):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)


def remember_random_state(device: torch.device) -> Callable[[], None]:
    """Remembers the state of all random numbers that a step may draw.

    Args:
        device: Where the model runs; it must be the current one of its kind.

    Returns:
        A function that goes back to that state.
    """
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    module = None if device.type == "cpu" else torch.get_device_module(device)
    of_device = None if module is None else module.get_rng_state()

    def rewind() -> None:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        if module is not None:
            module.set_rng_state(of_device)

    return rewind
