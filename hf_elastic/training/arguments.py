"""Training arguments of transformers, plus those of a supernet: one group for each part of the training."""

from dataclasses import dataclass, field

import torch
from transformers import TrainingArguments

from .co_training_arguments import CoTrainingArguments
from .distillation_arguments import DistillationArguments
from .optimization_arguments import OptimizationArguments
from .resource_arguments import ResourceArguments
from .stability_arguments import StabilityArguments
from .teacher_arguments import TeacherArguments


@dataclass(repr=False)  # the parent's hides tokens
class ElasticTrainingArguments(
    CoTrainingArguments,
    DistillationArguments,
    TeacherArguments,
    OptimizationArguments,
    ResourceArguments,
    StabilityArguments,
    TrainingArguments,
):
    """[`~transformers.TrainingArguments`] for a supernet.

    Every mechanism can be switched on by itself. Meaning, defaults and papers of its arguments are in the docstring of
    the class that they belong to:

    - `hf_elastic.training.co_training_arguments.CoTrainingArguments`: which subnets a step runs, and how their
      gradients come together.
    - `hf_elastic.training.distillation_arguments.DistillationArguments`: what a subnet learns from others, and how
      much of it.
    - `hf_elastic.training.teacher_arguments.TeacherArguments`: how several teachers become one, and how they run.
    - `hf_elastic.training.optimization_arguments.OptimizationArguments`: learning rates by depth, clipping, averages
      of the weights.
    - `hf_elastic.training.resource_arguments.ResourceArguments`: memory, time and compute that the training may take.
    - `hf_elastic.training.stability_arguments.StabilityArguments`: what becomes of bad steps, and how closely the
      training is watched.

    `ddp_find_unused_parameters` is always False, because the trainer gives every parameter a gradient itself, and
    `dataloader_pin_memory` is where there is no accelerator.

    Args:
        restore_callback_states_from_checkpoint (`bool`, defaults to `True`):
            Whether a resumed training goes on with the states of callbacks, in which the mechanisms keep theirs.

    Raises:
        TypeError: If a value is of another kind.
        ValueError: If a value is out of range or two do not go together.

    Example:
        >>> args = ElasticTrainingArguments("out", sampling="joint", subnet_weights={"large": 2.0})
    """

    # Without it a resumed training would begin with the mechanisms' initial states.
    restore_callback_states_from_checkpoint: bool = field(
        default=True, metadata={"help": "Whether a resumed training goes on with the states of callbacks."}
    )

    def __post_init__(self) -> None:
        self.check_co_training()
        self.check_distillation()
        self.check_teacher_arguments()
        self.check_optimization()
        if self.ddp_find_unused_parameters:
            raise ValueError(
                "ddp_find_unused_parameters=True does not work with several backward passes per step. Leave it out: "
                "every parameter gets a gradient without it."
            )
        self.ddp_find_unused_parameters = False
        super().__post_init__()
        # The loader warns of each training that asks for it in vain.
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.accelerator.is_available()
        self.check_resources()
        self.check_stability()
