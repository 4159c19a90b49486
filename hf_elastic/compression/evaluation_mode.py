"""Running a model without dropout, whatever mode it is in."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode until the block ends."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
