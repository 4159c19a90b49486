"""Several tasks: all sizes of one encoder trained on all of them together, a head for each, and what each answers."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from transformers import DataCollatorForMultipleChoice, set_seed

from ..checkpoints import load_supernet_with_new_head, load_tokenizer
from ..recipes import TrainingSettings, check_sizes, subnet_configs
from ..training.data_fingerprint import DataFingerprint
from ..training.family import FamilyRun, train_family
from ..training.trainer import ElasticTrainer
from .averages import mean_score
from .encoding import EncodedSplit, collator_for, encode_split
from .input_formats import answers_of
from .multi_task_model import MultiTaskModel
from .multi_task_trainer import MultiTaskCollator, MultiTaskTrainer
from .preprocessing import Preprocessing
from .scoring import score
from .size_predictions import predict_sizes
from .task_checks import check_length
from .task_data import TaskData
from .task_mixture import Mixing, TaskMixture
from .task_run import HELD_OUT, TaskRun, predicted_run
from .task_training import hold_out


def train_on_tasks(
    source: str | Path,
    tasks: Sequence[tuple[TaskData, int]],
    settings: TrainingSettings,
    mixing: Mixing,
    sizes: Mapping[str, Mapping[str, float]] | None = None,
    held_out_fraction: float = 0.0,
    on_phase: Callable[[str], None] | None = None,
) -> list[TaskRun]:
    """Trains all sizes of one encoder on several tasks together, and predicts every split of each.

    Args:
        source (`str` or `Path`):
            Folder or Hub id of a supernet, or of a checkpoint that [`convert`] takes. Its encoder is taken over; every
            task gets a new head.
        tasks (`Sequence[tuple[TaskData, int]]`):
            The rows of each task, and the tokens to which its texts are cut.
        settings ([`TrainingSettings`]):
            How to train. An epoch has as many batches as the rows of all tasks fill. Units are ranked by as many rows
            as it says for each task.
        mixing ([`Mixing`]):
            How often each task comes.
        sizes (`Mapping[str, Mapping[str, float]]`, *optional*):
            Multipliers of [`SubnetConfig.scaled`] by the name of each size. By default those that the supernet names.
        held_out_fraction (`float`, defaults to 0):
            Part of the training rows that is not trained on: to fit post-processing, as [`train_on_task`] does, and
            to measure progress, which `"dynamic"` mixing needs.
        on_phase (`Callable[[str], None]`, *optional*):
            As [`train_on_task`] takes it.

    Returns:
        `list[TaskRun]`: For each task an ordinary supernet of the common encoder and the task's head, with its
        predictions and their scores.

    Raises:
        ValueError, TypeError, OSError: If sizes, settings, data and checkpoint do not fit together.
    """
    announce = on_phase or (lambda phase: None)
    if mixing.sampling == "dynamic" and not held_out_fraction:
        raise ValueError(
            "sampling='dynamic' measures progress on rows that are held out: give held_out_fraction (--calibrate), "
            "e.g. 0.05."
        )
    names = [data.task.name for data, _ in tasks]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"Several tasks are called {repeated[0]}: give each once, and of one benchmark.")
    if sizes is not None:
        check_sizes(sizes)
    announce("data")
    is_dynamic = mixing.sampling == "dynamic"
    prepared = [(hold_out(data, settings, held_out_fraction, is_dynamic), length) for data, length in tasks]
    tokenizer = load_tokenizer(source)
    mixture = _mixture(prepared, tokenizer, mixing)
    model = _new_model(source, prepared, settings, sizes)
    with tempfile.TemporaryDirectory() as unused:  # the trainer wants a folder, but no checkpoints are written
        args = settings.arguments(unused)
        run = train_family(
            model,
            args,
            mixture,
            processing_class=tokenizer,
            data_collator=MultiTaskCollator(
                collator_for("sequence-classification", tokenizer), DataCollatorForMultipleChoice(tokenizer)
            ),
            finetune_epochs=settings.finetune_epochs,
            rank_examples=settings.rank_examples * len(tasks),
            on_phase=on_phase,
            trainer_class=MultiTaskTrainer,
        )
        announce("predict")
        return [_run_of_task(run, number, data, length) for number, (data, length) in enumerate(prepared)]


def _new_model(
    source: str | Path,
    tasks: Sequence[tuple[TaskData, int]],
    settings: TrainingSettings,
    sizes: Mapping[str, Mapping[str, float]] | None,
) -> MultiTaskModel:
    """The encoder of a checkpoint with new heads."""
    set_seed(settings.seed)  # what is new is drawn
    pretrained = load_supernet_with_new_head(source)
    check_length(pretrained, max(length for _, length in tasks))
    model = MultiTaskModel(pretrained.config, [data.task for data, _ in tasks])
    model.base_model.load_state_dict(pretrained.base_model.state_dict())
    if sizes is not None:
        model.config.subnets = subnet_configs(model.config, sizes)
    return model


def _mixture(tasks: Sequence[tuple[TaskData, int]], tokenizer, mixing: Mixing) -> TaskMixture:
    parts, held_out = {}, {}
    for number, (data, length) in enumerate(tasks):
        encode = partial(encode_split, data.task, tokenizer=tokenizer, max_length=length)
        parts[data.task.name] = encode(data.train).dataset
        if HELD_OUT in data.splits:
            dataset, counts = encode(data.splits[HELD_OUT])
            held_out[data.task.name] = (
                data,
                EncodedSplit(dataset.add_column("task", np.full(len(dataset), number)), counts),
            )
    return TaskMixture(parts, mixing, partial(_scores, held_out=held_out))


def _scores(trainer: ElasticTrainer, held_out: Mapping[str, tuple[TaskData, EncodedSplit]]) -> dict[str, float]:
    """The score of the full model on the rows of each task that are held out."""
    scores = {}
    for name, (data, split) in held_out.items():
        task, rows = data.task, data.splits[HELD_OUT].to_list()
        logits = predict_sizes(trainer, split, [trainer.full_name])[trainer.full_name]
        scores[name] = mean_score(task, score(task, rows, answers_of(task.input_format, rows, split.counts, logits)))
    return scores


def _run_of_task(run: FamilyRun, number: int, data: TaskData, max_length: int) -> TaskRun:
    task, tokenizer = data.task, run.trainer.processing_class
    model = run.trainer.elastic_model.of_task(number)
    Preprocessing.of(task, tokenizer, max_length).keep_in(model.config)
    collator = collator_for(task.input_format.head, tokenizer)
    trainer = ElasticTrainer(model, run.trainer.args, processing_class=tokenizer, data_collator=collator)
    mixture = run.trainer.train_dataset
    rows = {f"train ({name})": DataFingerprint.of(part) for name, part in mixture.parts.items()}
    trainer.state, trainer.run_record = run.trainer.state, replace(run.record, data=rows)
    others = ", ".join(name for name in mixture.parts if name != task.name)
    together = f", trained together with {others} ({mixture.mixing.sampling.replace('_', ' ')})"
    return replace(predicted_run(trainer, data, max_length, run.seconds, run.importance), together=together)
