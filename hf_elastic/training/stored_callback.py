"""Callbacks with tensors that checkpoints have to keep."""

from pathlib import Path

from torch import nn
from transformers import TrainerCallback


class StoredCallback(TrainerCallback):
    """A callback that writes files of its own into each checkpoint.

    What [`~transformers.trainer_callback.ExportableState`] keeps is JSON, which is no place for weights. The trainer
    calls [`~StoredCallback.save`] and [`~StoredCallback.load`] with the optimizer's state.
    """

    def save(self, folder: str | Path, model: nn.Module) -> None:
        """Writes the files.

        Args:
            folder (`str` or `Path`):
                The checkpoint.
            model (`nn.Module`):
                The model that is trained, with its own weights.
        """
        raise NotImplementedError

    def load(self, folder: str | Path, model: nn.Module) -> None:
        """Goes on from the files of a checkpoint, whose weights the model has.

        Args:
            folder (`str` or `Path`):
                The checkpoint.
            model (`nn.Module`):
                The model that is trained.

        Raises:
            ValueError: If they are those of another training.
        """
        raise NotImplementedError
