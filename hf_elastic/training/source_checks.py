"""Arguments that say what is learned from others, where there is nobody to learn from."""

from collections.abc import Sequence
from dataclasses import fields

from transformers.utils import logging

from .arguments import ElasticTrainingArguments
from .distillation_arguments import DistillationArguments
from .layer_maps import LAYER_MAPS
from .teacher_arguments import TeacherArguments
from .teachers import Teacher

logger = logging.get_logger(__name__)


def check_use_of_sources(teachers: Sequence[Teacher], args: ElasticTrainingArguments) -> None:
    """Checks that arguments about what is learned from others have an effect.

    Args:
        teachers: The teachers.
        args: The arguments.

    Raises:
        ValueError: If one about teachers is neither as by default nor switched off, and there are none. Where there is
            no other source either, others are told in a warning: trainings may be compared that differ in this alone.
    """
    if teachers:
        return
    given = _given(args, TeacherArguments)
    if args.layer_map not in LAYER_MAPS:
        given["layer_map"] = args.layer_map  # against the largest subnet layers are compared evenly
    for name, value in given.items():
        raise ValueError(f"{name}={value!r} is about teachers, and there are none. Give teachers, or leave it out.")
    if args.inplace_distillation and args.sampling != "one_per_step":
        return
    nobody = "inplace_distillation=False" if not args.inplace_distillation else "a single subnet in each step"
    if idle := _given(args, DistillationArguments):
        logger.warning(
            f"{', '.join(f'{name}={value!r}' for name, value in idle.items())} without effect: without teachers and "
            f"with {nobody} there is nothing to learn from but the labels. Give teachers, or leave it out."
        )


def _given(args: ElasticTrainingArguments, group: type) -> dict[str, object]:
    """The arguments of a group that are neither as by default nor switched off."""
    values = {field.name: (getattr(args, field.name), field.default) for field in fields(group)}
    return {name: value for name, (value, default) in values.items() if value and value != default}
