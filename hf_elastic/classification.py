"""Text classification in all sizes at once: from a checkpoint and labelled text to a trained supernet."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import Dataset
from transformers import DataCollatorWithPadding, set_seed

from .checkpoints import load_supernet, load_tokenizer
from .recipes import TrainingSettings, check_sizes, subnet_configs
from .tasks.text_classification import TextClassificationData, encode
from .training.collators import UnpaddingCollator
from .training.family import FamilyRun, train_family
from .training.trainer import ElasticTrainer


def train_text_classifier(
    source: str | Path,
    data: TextClassificationData,
    settings: TrainingSettings,
    sizes: Mapping[str, Mapping[str, float]] | None = None,
    on_phase: Callable[[str], None] | None = None,
    check: Callable[[ElasticTrainer], Any] | None = None,
) -> FamilyRun:
    """Trains all sizes of a text classifier, and scores them on the test split, or the validation split without one.

    The training looks at the validation split alone, e.g. to choose a checkpoint.

    Args:
        source (`str` or `Path`):
            Folder or Hub id of a supernet, or of a checkpoint that [`convert`] takes.
        data ([`TextClassificationData`]):
            Labelled text.
        settings ([`TrainingSettings`]):
            How to train.
        sizes (`Mapping[str, Mapping[str, float]]`, *optional*):
            Multipliers of [`SubnetConfig.scaled`] by the name of each size. By default those that the supernet names.
        on_phase (`Callable[[str], None]`, *optional*):
            As [`train_family`] takes it; before its phases comes `"data"`.
        check (`Callable[[ElasticTrainer], Any]`, *optional*):
            As [`train_family`] takes it.

    Returns:
        [`FamilyRun`]: The trained supernet, and the metrics of every size.

    Raises:
        ValueError, TypeError, OSError: If sizes, settings, data and checkpoint do not fit together.
    """
    with tempfile.TemporaryDirectory() as checkpoints:  # for the time of the training, where arguments ask for them
        prepared = prepare_text_classifier(source, data, settings, checkpoints, sizes, on_phase)
        return train_family(
            **prepared.arguments,
            test_dataset=prepared.test_dataset,
            finetune_epochs=settings.finetune_epochs,
            rank_examples=settings.rank_examples,
            on_phase=on_phase,
            check=check,
        )


class PreparedTraining(NamedTuple):
    """What a training is made of.

    Args:
        arguments (`dict[str, Any]`): Keyword arguments of [`ElasticTrainer`], and of [`train_family`].
        test_dataset (`Dataset`, *optional*): The test split, which no training may look at.
    """

    arguments: dict[str, Any]
    test_dataset: Dataset | None


def prepare_text_classifier(
    source: str | Path,
    data: TextClassificationData,
    settings: TrainingSettings,
    output_dir: str | Path,
    sizes: Mapping[str, Mapping[str, float]] | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> PreparedTraining:
    """Makes model, data and arguments of the common training.

    Args:
        source, data, settings, sizes, on_phase:
            As [`train_text_classifier`] takes them.
        output_dir (`str` or `Path`):
            Folder of the trainer.

    Returns:
        [`PreparedTraining`]: The arguments, evaluated on the validation split, and the test split.

    Raises:
        ValueError, TypeError, OSError: Likewise.
    """
    if sizes is not None:
        check_sizes(sizes)
    args = settings.arguments(output_dir)
    if on_phase is not None:
        on_phase("data")
    if settings.train_rows is not None:
        data = data.limit(settings.train_rows, settings.seed)
    tokenizer = load_tokenizer(source)
    encoded = encode(data, tokenizer, settings.max_length)
    set_seed(settings.seed)  # a new head is drawn
    model = load_supernet(source, **data.model_settings)
    if sizes is not None:
        model.config.subnets = subnet_configs(model.config, sizes)
    arguments = {
        "model": model,
        "args": args,
        "train_dataset": encoded["train"],
        "eval_dataset": encoded["validation"],
        "processing_class": tokenizer,
        "compute_metrics": data.compute_metrics,
        "data_collator": UnpaddingCollator(DataCollatorWithPadding(tokenizer)),
    }
    return PreparedTraining(arguments, encoded.get("test"))


def describe_training(settings: TrainingSettings, run: FamilyRun) -> dict[str, str | int | float]:
    """Gives what a card says of a run: its settings and its length, by names for readers.

    Args:
        settings ([`TrainingSettings`]):
            How it was trained.
        run ([`FamilyRun`]):
            What came of it.
    """
    return {
        "training rows": len(run.trainer.train_dataset),
        "evaluation rows": len(run.scored_dataset),
        "longest input (tokens)": settings.max_length,
        "batch size": settings.batch_size,
        "learning rate": settings.learning_rate,
        "epochs of the full model alone": settings.finetune_epochs,
        "rows to rank the units by": settings.rank_examples,
        "epochs of all sizes together": settings.cotrain_epochs,
        "sizes per step": settings.sampling,
        "seed": settings.seed,
        "minutes of training": round(sum(run.seconds.values()) / 60, 1),
        **run.outcome.described(),
    }
