"""One task: all sizes of a model trained on it together."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import EvalPrediction, set_seed

from ..checkpoints import load_supernet, load_supernet_with_new_head, load_tokenizer
from ..recipes import TrainingSettings, check_sizes, subnet_configs
from ..training.family import train_family
from ..training.trainer import ElasticTrainer
from .encoding import collator_for, encode_split
from .input_formats import Row, answers_of
from .preprocessing import Preprocessing
from .scoring import score
from .task import Task
from .task_checks import check_head, check_length
from .task_data import TaskData, split_rows
from .task_run import HELD_OUT, TaskRun, predicted_run


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
    if data.task.model_of is not None:
        raise ValueError(f"{data.task.name} is a diagnostic without training rows: train {data.task.model_of}.")
    announce("data")
    data = hold_out(data, settings, held_out_fraction)
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
        return predicted_run(run.trainer, data, settings.max_length, run.seconds, run.importance)


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
    set_seed(settings.seed)  # a new head is drawn
    load = load_supernet_with_new_head if new_head else load_supernet
    model = load(source, head, **task.labels.model_settings)
    check_length(model, settings.max_length)
    encode = partial(encode_split, task, tokenizer=tokenizer, max_length=settings.max_length)
    evaluated = data.scored_splits[0]
    validation = encode(data.splits[evaluated])
    train = encode(data.train)
    preprocessing.keep_in(model.config)
    if sizes is not None:
        model.config.subnets = subnet_configs(model.config, sizes)
    return {
        "model": model,
        "args": settings.arguments(output_dir),
        "train_dataset": train.dataset,
        "eval_dataset": validation.dataset,
        "processing_class": tokenizer,
        "compute_metrics": partial(
            task_metrics, task=task, rows=data.splits[evaluated].to_list(), counts=validation.counts
        ),
        "data_collator": collator_for(task.input_format.head, tokenizer),
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
    if task.label_range is not None:  # as predictions are
        logits = np.clip(logits, *task.label_range)
    return score(task, rows, answers_of(task.input_format, rows, counts, logits))


def hold_out(data: TaskData, settings: TrainingSettings, fraction: float, of_regression: bool = False) -> TaskData:
    """Gives the training rows that are wanted, with a part of them as the split [`HELD_OUT`].

    Args:
        data ([`TaskData`]):
            The rows of the task.
        settings ([`TrainingSettings`]):
            How many are wanted, and the seed of the choice.
        fraction (`float`):
            The part; 0 for none.
        of_regression (`bool`, defaults to `False`):
            Whether to hold out those of a regression as well, of which no post-processing is fitted.

    Raises:
        ValueError: If that part is no row.
    """
    task = data.task
    if settings.train_rows is not None:
        data = data.limit(settings.train_rows, settings.seed)
    if not fraction or (task.label_range is not None and not of_regression):
        return data
    kept, held_out = split_rows(task, data.train, fraction, settings.seed)
    if not held_out:
        raise ValueError(f"held_out_fraction={fraction} of {len(data.train)} training rows is none of them.")
    return data.replaced(**{task.train_split: data.train.select(kept), HELD_OUT: data.train.select(held_out)})
