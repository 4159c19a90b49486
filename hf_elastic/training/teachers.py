"""Models that a student learns from: frozen, beside the model, its optimizer and its checkpoints.

What is distinctive: a teacher may be any transformers model with the student's head, run in another precision, and
read the text in its own encoding, under column names of its own.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.trainer_utils import unwrap_peft_model
from transformers.utils import ModelOutput

from .argument_checks import check_number

# What is to be predicted, and so is no input of a teacher.
TARGETS = ("labels", "start_positions", "end_positions")
EXAMPLE_ID = "example_id"

Batch = Mapping[str, Any]


@dataclass(frozen=True)
class Teacher:
    """A model that a student learns from, with how much it counts and what it reads.

    Args:
        model (`PreTrainedModel`):
            The model, perhaps with adapters. The trainer freezes it, moves it to its device, and changes its precision
            where `teacher_dtype` asks for it.
        weight (`float`, defaults to 1.0):
            How much its predictions count among those of all that the student learns from; the largest subnet of a
            step counts 1.
        inputs (`str`, *optional*):
            What the names of its own inputs start with, for a teacher with another tokenizer: with `"electra_"` it
            reads `electra_input_ids`, `electra_attention_mask` and so on, as [`encode_for_teacher`] adds them to a
            dataset. By default it reads what the student reads.
        name (`str`, *optional*):
            What logs and stored weights call it; by default `teacher_0` and so on by its place.

    Raises:
        TypeError: If the weight is no number.
        ValueError: If the weight is negative, or `inputs` or the name is no name.

    Example:
        >>> ElasticTrainer(model, args, teachers=[bert, Teacher(electra, weight=0.5, inputs="electra_")])
    """

    model: nn.Module
    weight: float = 1.0
    inputs: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_number("Teacher.weight", self.weight)
        if self.weight < 0:
            raise ValueError(f"Teacher.weight={self.weight} is negative. Give a positive weight, or leave it out.")
        for field in ("inputs", "name"):
            value = getattr(self, field)
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"Teacher.{field}={value!r} is no name. Give a text such as 'electra_', or None.")


def freeze(teacher: Teacher, device: torch.device, dtype: str | None = None) -> None:
    """Puts a teacher's model into evaluation mode, without gradients, on a device.

    Args:
        teacher: The teacher. Its model is changed, not copied.
        device: Where it runs.
        dtype: Name of the precision of its weights, e.g. `"bfloat16"`. None leaves it.
    """
    model = teacher.model.eval().requires_grad_(False)
    model.to(device) if dtype is None else model.to(device, getattr(torch, dtype))


def teacher_inputs(teacher: Teacher, batch: Batch) -> dict[str, Any]:
    """What of a batch a teacher reads, by the names of its own arguments.

    Args:
        teacher: The teacher.
        batch: Inputs of the student and of all teachers.

    Returns:
        Those of its own prefix, or else the student's, without targets and without what its forward does not know.

    Raises:
        ValueError: If there is none of its prefix.
    """
    prefix = teacher.inputs or ""
    # Of the model inside the adapters, whose forward names fewer arguments.
    known = inspect.signature(unwrap_peft_model(teacher.model).forward).parameters
    own = {name.removeprefix(prefix): value for name, value in batch.items() if name.startswith(prefix)}
    inputs = {name: value for name, value in own.items() if name in known and name not in TARGETS}
    if prefix and not inputs:
        raise ValueError(
            f"Teacher {teacher.name!r} reads inputs that start with {prefix!r}, but the batch has "
            f"{', '.join(batch)}. Make its columns with encode_for_teacher, and pad them with TeacherInputsCollator."
        )
    return inputs


def student_inputs(batch: Batch, teachers: Sequence[Teacher]) -> dict[str, Any]:
    """A batch without the inputs of teachers and the ids of the examples, which the student does not know."""
    prefixes = input_prefixes(teachers)
    return {name: value for name, value in batch.items() if name != EXAMPLE_ID and not name.startswith(prefixes)}


def input_prefixes(teachers: Sequence[Teacher]) -> tuple[str, ...]:
    """What the columns of teachers with inputs of their own start with."""
    return tuple(dict.fromkeys(teacher.inputs for teacher in teachers if teacher.inputs is not None))


def observe(
    teacher: Teacher, batch: Batch, output_hidden_states: bool = False, output_attentions: bool = False
) -> ModelOutput:
    """Runs a teacher on a batch, without a graph.

    Args:
        teacher: The teacher, frozen.
        batch: Inputs of the student and of all teachers.
        output_hidden_states: Whether they are needed.
        output_attentions: Likewise.

    Returns:
        The teacher's outputs, in float32 where they were in half precision.
    """
    inputs = teacher_inputs(teacher, batch)
    wanted = {"output_hidden_states": output_hidden_states}
    if output_attentions:
        wanted["output_attentions"] = True  # named only where asked for: not every class has it
    with torch.no_grad():
        outputs = teacher.model(**_in_precision_of(teacher.model, inputs), **wanted, return_dict=True)
    return ModelOutput({name: _at_least_float32(value) for name, value in outputs.items()})


def _in_precision_of(model: nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """Embeddings that are given as inputs have to have the precision of the weights."""
    embeddings = inputs.get("inputs_embeds")
    return inputs if embeddings is None else inputs | {"inputs_embeds": embeddings.to(model.dtype)}


def _at_least_float32(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_at_least_float32(part) for part in value)
    half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value
