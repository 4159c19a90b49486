"""How much a subnet may change what all sizes share."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor


@contextmanager
def scaled_gradients(parameters: Iterable[Tensor], factor: float) -> Iterator[None]:
    """Multiplies what backward passes within the context add to the gradients of parameters.

    A smaller subnet's gradient on the weights that it shares with larger ones helps it at their cost, as all sizes
    pull at the same weights. A factor below 1 weighs this in favour of the larger ones, but leaves the subnet's own
    part, such as the head, its full gradient; a smaller weight of its loss would slow down both. The rule is this
    project's own.

    Args:
        parameters: The weights that are shared; those without a gradient are left alone.
        factor: 0 lets the subnet change nothing of them, 1 changes nothing.
    """
    if factor == 1:
        yield
        return
    hooks = [p.register_hook(lambda gradient: gradient * factor) for p in parameters if p.requires_grad]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
