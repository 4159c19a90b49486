"""Finding a callback of a trainer."""

from typing import TypeVar

from transformers import Trainer, TrainerCallback

Kind = TypeVar("Kind", bound=TrainerCallback)


def find_callback(trainer: Trainer, kind: type[Kind]) -> Kind | None:
    """Gives the callback of a class that a trainer has now, or None.

    A resumed training makes those that have a state anew, so that references to them do not last.

    Args:
        trainer: The trainer.
        kind: The class.
    """
    return next((callback for callback in trainer.callback_handler.callbacks if isinstance(callback, kind)), None)
