"""Checks of teachers before the training: what a student can learn from, and what would silently teach it nonsense."""

from collections.abc import Iterable
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.trainer_utils import unwrap_peft_model

from ..modeling.modeling_elastic import (
    ElasticForSequenceClassification,
    ElasticForTokenClassification,
    ElasticPreTrainedModel,
)
from .arguments import ElasticTrainingArguments


def list_teachers(teachers: Iterable[nn.Module] | None) -> list[nn.Module]:
    """Gives the teachers as a list; raises TypeError if they are no sequence, such as a single model."""
    if teachers is not None and not isinstance(teachers, Iterable):
        raise TypeError(f"teachers is a {type(teachers).__name__}. Give a list of models: teachers=[teacher].")
    return list(teachers or [])


def check_teachers(teachers: list[nn.Module], model: nn.Module, args: ElasticTrainingArguments) -> None:
    """Checks each teacher against the student.

    Args:
        teachers: The teachers, perhaps with adapters.
        model: The student, likewise.
        args: Whether hidden states are compared.

    Raises:
        TypeError: If a teacher is no model, or has another head.
        ValueError: If it is the student, or its inputs, hidden states or classes are others.
    """
    student = unwrap_peft_model(model)
    for i, teacher in enumerate(teachers):
        name = f"teachers[{i}]"
        if not hasattr(teacher, "config"):
            raise TypeError(
                f"{name} is a {type(teacher).__name__}. Give loaded models, e.g. "
                "AutoModelForSequenceClassification.from_pretrained(...)."
            )
        teacher = unwrap_peft_model(teacher)
        if teacher is student:
            raise ValueError(
                f"{name} is the model that is trained, while a teacher is frozen. Give a copy, or use "
                "inplace_distillation."
            )
        _check_head(name, teacher, student)
        _check_sizes(name, teacher.config, student.config, args.hidden_weight > 0)
        ranked = [getattr(config, "hidden_units_ranked", False) for config in (teacher.config, student.config)]
        if args.hidden_weight > 0 and ranked[0] != ranked[1]:
            raise ValueError(
                f"The hidden units of {name} are in another order than those of the model (rank reordered one of "
                "them), so that their hidden states cannot be compared. Set hidden_weight=0, or use as teacher a copy "
                "of the model that was made after ranking."
            )
        if isinstance(student, (ElasticForSequenceClassification, ElasticForTokenClassification)):
            _check_classes(name, teacher.config, student.config)


def _check_head(name: str, teacher: nn.Module, student: ElasticPreTrainedModel) -> None:
    """Compares what follows `For` in the names of the classes, where both have it."""
    ours, theirs = type(student).__name__.partition("For")[2], type(teacher).__name__
    has_head = not isinstance(teacher, PreTrainedModel) or teacher.base_model is not teacher
    # Contained, because a class of one's own may be called BertForMultiLabelSequenceClassification.
    if not has_head or ("For" in theirs and ours not in theirs):
        raise TypeError(
            f"{name} is a {theirs}, which has not the head of the model, a {type(student).__name__}. Load the teacher "
            f"as AutoModelFor{ours}, from a checkpoint that was trained for this task."
        )


def _check_sizes(name: str, theirs: Any, ours: Any, aligned: bool) -> None:
    remedies = {"vocab_size": "Give a teacher with the same tokenizer"}
    if aligned:
        remedies["hidden_size"] = "Set hidden_weight=0"
    for setting, remedy in remedies.items():
        expected, found = getattr(ours, setting), getattr(theirs, setting, None)
        if found not in (None, expected):
            raise ValueError(f"{name} has {setting}={found}, the model {expected}. {remedy}.")
    positions = getattr(theirs, "max_position_embeddings", None) or 0  # not positive where positions are relative
    if 0 < positions < ours.max_position_embeddings:
        raise ValueError(
            f"{name} has max_position_embeddings={positions}, the model {ours.max_position_embeddings}, so that it "
            "cannot read all that the model reads. Give a teacher with at least as many positions."
        )


def _check_classes(name: str, theirs: Any, ours: Any) -> None:
    found = getattr(theirs, "num_labels", None)
    if found not in (None, ours.num_labels):
        raise ValueError(
            f"{name} has num_labels={found}, the model {ours.num_labels}. Give a teacher of the same task."
        )
    order, other_order = _class_names(ours), _class_names(theirs)
    if order != other_order and sorted(order) == sorted(other_order):
        raise ValueError(
            f"{name} has the classes in the order {other_order}, the model in the order {order} (config.id2label). "
            "Give a teacher with the same order, or convert and encode the labels in the teacher's."
        )


def _class_names(config: Any) -> list[str]:
    """Names of the classes in their order, in lower case. Default names (`LABEL_0`, ...) are always in order."""
    names: dict[int, str] = getattr(config, "id2label", None) or {}
    return [str(names[i]).lower() for i in sorted(names)]
