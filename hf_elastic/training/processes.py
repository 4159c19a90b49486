"""What processes decide together, so that each of them does the same."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from accelerate import Accelerator
from torch import Tensor, distributed, nn


def any_process(flag: bool, device: torch.device) -> bool:
    """Whether any process says yes; every process has to ask.

    Args:
        flag: The answer of this process.
        device: Where the processes talk to each other, normally `args.device`.

    Returns:
        The same in every process.
    """
    return max_over_processes(float(flag), device) > 0


def max_over_processes(value: float, device: torch.device) -> float:
    """The largest number that any process has; every process has to ask.

    Args:
        value: The number of this process.
        device: Where the processes talk to each other, normally `args.device`.

    Returns:
        The same in every process.
    """
    if not _several():
        return value
    largest = torch.tensor(value, device=device, dtype=torch.float32)
    distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
    return largest.item()


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Averages gradients over the processes, as DDP does in a pass that it synchronizes.

    Args:
        parameters: Those of a model whose gradients every process has gathered for itself; each process must have
            gradients of the same ones.
    """
    if not _several():
        return
    gradients: list[Tensor] = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for work in [distributed.all_reduce(gradient, async_op=True) for gradient in gradients]:
        work.wait()
    torch._foreach_div_(gradients, distributed.get_world_size())


def touch_parameters(model: nn.Module) -> Tensor:
    """Zero, with a zero gradient for every trainable parameter.

    To be added to the loss of the last pass of a step. Of what the earlier passes gathered, DDP reduces only the
    parameters that the last one has a gradient for. And a parameter without a gradient would be left out by the
    optimizer in one process, but not in several.

    Args:
        model: The model, wrapped for several processes or not.
    """
    return sum(parameter.flatten()[:0].sum() for parameter in model.parameters() if parameter.requires_grad)


@contextmanager
def gathering_gradients(accelerator: Accelerator, model: nn.Module, keeps_reducing: bool = False) -> Iterator[None]:
    """For all passes of a step but its last: gradients stay in their process, and DeepSpeed takes no step yet.

    Args:
        accelerator: That of the trainer.
        model: The model, wrapped for several processes.
        keeps_reducing: Whether gradients are reduced after each pass all the same.
    """
    state = accelerator.gradient_state
    synchronizes = state.sync_gradients
    state._set_sync_gradients(False)
    try:
        with nullcontext() if keeps_reducing else accelerator.no_sync(model):
            yield
    finally:
        state._set_sync_gradients(synchronizes)


def _several() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
