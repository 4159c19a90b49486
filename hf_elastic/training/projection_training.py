"""Trains feature projections beside a model, which neither knows them nor is saved with them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import reduce
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import unwrap_peft_model

from .feature_projections import FeatureProjections
from .stored_callback import StoredCallback
from .teachers import Teacher

PROJECTIONS_NAME = "feature_projections.safetensors"


class ProjectionTraining(StoredCallback):
    """Does for the projections what the trainer does for the parameters of its model alone.

    Their gradients are set to zero before a step and averaged over the processes after it, and they are kept by
    checkpoints. They are not clipped.

    Args:
        projections ([`FeatureProjections`]):
            The projections, on the device of the model.
    """

    def __init__(self, projections: FeatureProjections) -> None:
        self.projections = projections

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.zero_gradients()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        for parameter in self.projections.parameters():
            if parameter.grad is not None:  # a step that is left out has none, in any process
                parameter.grad = reduce(parameter.grad, reduction="mean")

    def zero_gradients(self) -> None:
        """Sets the gradients to zero, not to None: a step without their loss leaves the same ones to each process."""
        for parameter in self.projections.parameters():
            parameter.grad = parameter.new_zeros(parameter.shape)

    def add_to(self, optimizer: torch.optim.Optimizer, weight_decay: float, has_schedule: bool = False) -> None:
        """Has an optimizer train the projections too, at the learning rate of its first group.

        Args:
            optimizer: The optimizer; one that has them already is left as it is.
            weight_decay: That of the projections.
            has_schedule: Whether a schedule has been made for its groups. The projections then join the first one,
                with its weight decay: the schedule would know of no further group.
        """
        names, weights = zip(*self.projections.named_parameters(prefix="feature_projections"), strict=True)
        first = optimizer.param_groups[0]
        if any(parameter is weights[0] for group in optimizer.param_groups for parameter in group["params"]):
            return
        is_named = "param_names" in first  # then all groups have to be
        if has_schedule:
            first["params"].extend(weights)
            if is_named:
                first["param_names"].extend(names)
            return
        params = list(zip(names, weights, strict=True)) if is_named else list(weights)
        optimizer.add_param_group({"params": params, "lr": first["lr"], "weight_decay": weight_decay})

    def save(self, folder: str | Path, model: nn.Module) -> None:
        """Writes the projections into the folder of a checkpoint."""
        save_file(self.projections.state_dict(), Path(folder) / PROJECTIONS_NAME)

    def load(self, folder: str | Path, model: nn.Module) -> None:
        """Reads them back.

        Raises:
            ValueError: If the checkpoint has none, or those of other teachers.
        """
        file = Path(folder) / PROJECTIONS_NAME
        stored = load_file(file) if file.is_file() else {}
        shapes, own = [
            {name: tuple(weight.shape) for name, weight in weights.items()}
            for weights in (stored, self.projections.state_dict())
        ]
        if shapes != own:
            raise ValueError(
                f"{folder} was not trained with these teachers: its feature projections are {shapes}, and they need "
                f"{own}. Resume with the same teachers and losses."
            )
        self.projections.load_state_dict(stored)


def projections_for(teachers: Sequence[Teacher], hidden_size: int, seed: int) -> FeatureProjections | None:
    """Gives projections to the hidden sizes of teachers, or None if all that can be compared are as the student's.

    Args:
        teachers: The teachers.
        hidden_size: Hidden size of the full student.
        seed: Seed of the initial weights.
    """
    sizes = [_comparable_size(teacher) or hidden_size for teacher in teachers]
    if all(size == hidden_size for size in sizes):
        return None
    return FeatureProjections(hidden_size, sizes, seed)


def _comparable_size(teacher: Teacher) -> int | None:
    """The hidden size of a teacher that reads the student's tokens, as far as its configuration tells."""
    config: Any = unwrap_peft_model(teacher.model).config
    return getattr(config, "hidden_size", None) if teacher.inputs is None else None
