"""One task: all sizes of a model trained on it together, and what each of them answers in every split."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import DataCollatorForMultipleChoice, DataCollatorWithPadding, EvalPrediction, set_seed
from transformers.utils import logging

from ..checkpoints import class_with_head, load_tokenizer, load_with_head, load_with_new_head, read_config
from ..recipes import TrainingSettings, check_sizes, subnet_configs
from ..training.collators import UnpaddingCollator
from ..training.family import FamilyRun, train_family
from ..training.trainer import ElasticTrainer
from .encoding import encode_split
from .input_formats import Row, answers_of
from .label_order import check_label_order, suspect_label_order
from .post_processing import PostProcessing
from .predictions import Predictions
from .preprocessing import Preprocessing, saved_preprocessing
from .scoring import score
from .size_predictions import predict_sizes
from .splits import stratified_split
from .task import Task
from .task_data import TaskData, strata

logger = logging.get_logger(__name__)

# Rows that post-processing is fitted on; no split of a benchmark has that name.
HELD_OUT = "held_out"


@dataclass(frozen=True)
class TaskRun:
    """What a training on a task gives.

    Args:
        data: The rows that were trained and predicted, those held out among them.
        run: The trained supernet.
        predictions: What each size predicts, by split and size; post-processed.
        post_processing: What was done to the logits of each size.
    """

    data: TaskData
    run: FamilyRun
    predictions: dict[str, dict[str, Predictions]]
    post_processing: dict[str, PostProcessing]

    @cached_property
    def scores(self) -> dict[str, dict[str, dict[str, float]]]:
        """The task's metrics by split, size and name, of the splits with labels."""
        task = self.data.task
        return {
            split: {
                size: score(task, self.data.splits[split].to_list(), predictions.answers)
                for size, predictions in self.predictions[split].items()
            }
            for split in self.data.scored_splits
            if split in self.predictions
        }


def train_on_task(
    source: str | Path,
    data: TaskData,
    settings: TrainingSettings,
    sizes: Mapping[str, Mapping[str, float]] | None = None,
    new_head: bool = False,
    held_out_fraction: float = 0.0,
    on_phase: Callable[[str], None] | None = None,
    check: Callable[[ElasticTrainer], Any] | None = None,
) -> TaskRun:
    """Trains all sizes of a model on a task, and predicts every split of it.

    Args:
        source (`str` or `Path`):
            Folder or Hub id of a supernet, or of a checkpoint that [`convert`] takes.
        data ([`TaskData`]):
            The rows of the task.
        settings ([`TrainingSettings`]):
            How to train.
        sizes (`Mapping[str, Mapping[str, float]]`, *optional*):
            Multipliers of [`SubnetConfig.scaled`] by the name of each size. By default those that the supernet names.
        new_head (`bool`, defaults to `False`):
            Whether to take over only the encoder, whatever head the source has, as after a training on another task.
        held_out_fraction (`float`, defaults to 0):
            Part of the training rows that is not trained on, to fit a temperature and a decision threshold for each
            size, see [`PostProcessing`]. 0 leaves the logits as they are, but for the range of a regression.
        on_phase, check:
            As [`train_family`] takes them; before its phases comes `"data"`, and after them `"predict"`.

    Returns:
        [`TaskRun`]: The trained supernet, its predictions and their scores.

    Raises:
        ValueError, TypeError, OSError: If sizes, settings, data and checkpoint do not fit together.
    """
    announce = on_phase or (lambda phase: None)
    announce("data")
    data = _prepared(data, settings, held_out_fraction)
    with tempfile.TemporaryDirectory() as unused:  # the trainer wants a folder, but no checkpoints are written
        prepared = prepare_task(source, data, settings, unused, sizes, new_head)
        if check is None and prepared["args"].eval_strategy == "no":
            del prepared["eval_dataset"]  # all splits are predicted below
        run = train_family(
            **prepared,
            finetune_epochs=settings.finetune_epochs,
            rank_examples=settings.rank_examples,
            on_phase=on_phase,
            check=check,
        )
        announce("predict")
        splits = [split for split in data.splits if split != data.task.train_split]
        predictions = {split: _predict(run.trainer, data, split, settings.max_length) for split in splits}
    post_processing = _fit(data.task, predictions.pop(HELD_OUT, None), list(run.trainer.subnets))
    for split, by_size in predictions.items():
        for size, raw in by_size.items():
            by_size[size] = replace(raw, logits=post_processing[size].apply(raw.logits))
        _warn_of_label_order(data.task, split, by_size)
    return TaskRun(data, run, predictions, post_processing)


def prepare_task(
    source: str | Path,
    data: TaskData,
    settings: TrainingSettings,
    output_dir: str | Path,
    sizes: Mapping[str, Mapping[str, float]] | None = None,
    new_head: bool = False,
) -> dict[str, Any]:
    """Makes model, data and arguments of the common training.

    Args:
        source, data, settings, sizes, new_head:
            As [`train_on_task`] takes them.
        output_dir (`str` or `Path`):
            Folder of the trainer.

    Returns:
        Keyword arguments of [`ElasticTrainer`], and of [`train_family`]. Evaluations are of the first labelled split.

    Raises:
        ValueError, TypeError, OSError: Likewise.
    """
    task, head = data.task, data.task.input_format.head
    if sizes is not None:
        check_sizes(sizes)
    tokenizer = load_tokenizer(source)
    preprocessing = Preprocessing.of(task, tokenizer, settings.max_length)
    if not new_head:
        check_head(task, source, preprocessing)
    encode = partial(encode_split, task, tokenizer=tokenizer, max_length=settings.max_length)
    evaluated = data.scored_splits[0]
    validation = encode(data.splits[evaluated])
    train = encode(data.train)
    set_seed(settings.seed)  # a new head is drawn
    load = load_with_new_head if new_head else load_with_head
    model = load(source, head, **({} if head == "multiple-choice" else task.labels.model_settings))
    preprocessing.keep_in(model.config)
    if sizes is not None:
        model.config.subnets = subnet_configs(model.config, sizes)
    is_choice = head == "multiple-choice"
    return {
        "model": model,
        "args": settings.arguments(output_dir),
        "train_dataset": train.dataset,
        "eval_dataset": validation.dataset,
        "processing_class": tokenizer,
        "compute_metrics": partial(
            task_metrics, task=task, rows=data.splits[evaluated].to_list(), counts=validation.counts
        ),
        "data_collator": DataCollatorForMultipleChoice(tokenizer)
        if is_choice
        else UnpaddingCollator(DataCollatorWithPadding(tokenizer)),
    }


def task_metrics(
    prediction: EvalPrediction, task: Task, rows: Sequence[Row], counts: Sequence[int]
) -> dict[str, float]:
    """Scores an evaluation of a whole split, as [`~transformers.Trainer`] has it done.

    Args:
        prediction: The logits of all examples, in the order of the split.
        task: The task.
        rows: The rows of the split.
        counts: Number of examples of each row.
    """
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    return score(task, rows, answers_of(task.input_format, rows, counts, logits))


def check_head(task: Task, source: str | Path, preprocessing: Preprocessing) -> None:
    """Checks that a checkpoint's head, if it has one of the task's kind, was made for the task.

    Args:
        task: The task.
        source: Folder or Hub id of the checkpoint.
        preprocessing: How its inputs are made now.

    Raises:
        ValueError: If it is for other labels, or for the same in another order, or was trained with other inputs.
    """
    config = read_config(source)
    kind = class_with_head(task.input_format.head).__name__.removeprefix("Elastic")
    if not any(name.endswith(kind) for name in config.architectures or []):
        return
    check_label_order(task, config)
    names = [config.id2label[i] for i in sorted(config.id2label)]
    are_names = task.label_names and any(name != f"LABEL_{i}" for i, name in enumerate(names))
    plain = [name.lower() for name in names]
    if task.input_format.head == "sequence-classification" and (
        config.num_labels != task.labels.num_labels
        or (are_names and plain != [name.lower() for name in task.label_names])
    ):
        raise ValueError(
            f"{source} has a head for the labels {', '.join(names)}, and {task.name} has "
            f"{', '.join(task.label_names) or 'a number'}. To keep the encoder and train a new head, give it as "
            "init_from (--init-from)."
        )
    saved = saved_preprocessing(source, config)
    if saved is not None:
        saved.check(preprocessing)


def _prepared(data: TaskData, settings: TrainingSettings, held_out_fraction: float) -> TaskData:
    """The training rows that are wanted, without those that are held out."""
    task = data.task
    if settings.train_rows is not None:
        data = data.limit(settings.train_rows, settings.seed)
    if not held_out_fraction:
        return data
    kept, held_out = stratified_split(strata(task, data.train), held_out_fraction, settings.seed)
    if not held_out:
        raise ValueError(f"held_out_fraction={held_out_fraction} of {len(data.train)} training rows is none of them.")
    splits = {task.train_split: data.train.select(kept), HELD_OUT: data.train.select(held_out)}
    return replace(data, splits={**data.splits, **splits})


def _predict(trainer: ElasticTrainer, data: TaskData, split: str, max_length: int) -> dict[str, Predictions]:
    task, rows = data.task, data.splits[split]
    encoded = encode_split(task, rows, trainer.processing_class, max_length, with_labels=False)
    if task.input_format.head == "multiple-choice":  # its collator wants labels, which nothing reads
        encoded = encoded._replace(dataset=encoded.dataset.add_column("labels", [0] * len(rows)))
    logits = predict_sizes(trainer, encoded)
    return {
        size: Predictions.of(task, split, rows.to_list(), encoded.counts, values) for size, values in logits.items()
    }


def _fit(task: Task, held_out: Mapping[str, Predictions] | None, sizes: Sequence[str]) -> dict[str, PostProcessing]:
    if held_out is None:
        return dict.fromkeys(sizes, PostProcessing(label_range=task.label_range))
    return {size: PostProcessing.fit(task, of.logits, np.asarray(of.example_labels)) for size, of in held_out.items()}


def _warn_of_label_order(task: Task, split: str, by_size: Mapping[str, Predictions]) -> None:
    largest = next(iter(by_size.values()))
    if not task.label_names or task.label_column != "label" or largest.labels is None:
        return
    order = suspect_label_order(largest.labels, largest.answers, len(task.label_names))
    if order is not None:
        meant = ", ".join(f"{task.label_names[i]} by {task.label_names[j]}" for j, i in enumerate(order) if i != j)
        logger.warning(f"The scores on {task.name} {split} are as if labels were exchanged: the model means {meant}.")
