"""Ordinary training of the full model alone, before all sizes are trained together.

What is distinctive: it is done by the same trainer, with the full model as the only size, so that everything which is
not about several sizes works in it as well: micro-batches, learning rates by depth, clipping, averages, bad steps.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..modeling.subnet_elastic import SubnetConfig
from .arguments import ElasticTrainingArguments
from .co_training_arguments import CoTrainingArguments
from .distillation_arguments import DistillationArguments
from .progress import show_loss_only
from .teacher_arguments import TeacherArguments
from .trainer import ElasticTrainer


def finetuning_arguments(
    args: ElasticTrainingArguments, epochs: float, kept: Sequence[str] = ()
) -> ElasticTrainingArguments:
    """Gives the arguments of the fine-tuning of the full model: those of the common training, but for a few.

    What concerns several sizes, evaluations, checkpoints or the end of the common training is left out. So a bad step
    is skipped where the common training would roll back to a checkpoint, and a batch keeps its size.

    Args:
        args ([`ElasticTrainingArguments`]):
            How all sizes are trained together.
        epochs (`float`):
            How long the full model is trained alone.
        kept (`Sequence[str]`, *optional*):
            Arguments about several sizes that stay as they are.

    Raises:
        ValueError: If what is left does not go together.
    """
    of_sizes = {
        argument.name: argument.default
        for group in (CoTrainingArguments, DistillationArguments, TeacherArguments)
        for argument in fields(group)
        if argument.name not in kept
    }
    # Of one size nothing is compared with others.
    of_sizes |= {"hidden_weight": 0.0, "adapt_num_random_subnets": False}
    of_end = {
        "num_train_epochs": epochs,
        "max_steps": -1,
        "max_minutes": None,
        "max_examples": None,
        "early_stopping_min_gain": None,
        "keep_effective_batch": True,
    }
    of_files = {
        "output_dir": str(Path(args.output_dir) / "fine-tune"),
        "eval_strategy": "no",
        "eval_on_start": False,
        "save_strategy": "no",
        "load_best_model_at_end": False,
        "metric_for_best_model": None,
        "push_to_hub": False,
        "on_bad_step": "skip" if args.on_bad_step == "rollback" else args.on_bad_step,
    }
    try:
        return replace(args, **of_sizes, **of_end, **of_files)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The fine-tuning of the full model, which has neither evaluations nor checkpoints, cannot take these "
            f"arguments: {error} Change them, or fine-tune before and give finetune_epochs=0."
        ) from error


def finetune(trainer: ElasticTrainer, args: ElasticTrainingArguments, **keywords: Any) -> None:
    """Trains the full model of a trainer alone, which is left in it.

    Args:
        trainer ([`ElasticTrainer`]):
            The trainer of all sizes.
        args ([`ElasticTrainingArguments`]):
            What [`finetuning_arguments`] gives.
        **keywords:
            Arguments of a trainer: the data, and how to train on them.
    """
    config = trainer.elastic_model.config
    # Where no size is the whole model, it has a name that sizes cannot have.
    name = trainer.full_name if trainer.full_name in config.subnets else "full"
    subnets, config.subnets = config.subnets, {name: SubnetConfig()}
    try:
        finetuner = type(trainer)(trainer.model, args, **keywords)
        show_loss_only(finetuner, "Full model")
        finetuner.train()
    finally:
        config.subnets = subnets
