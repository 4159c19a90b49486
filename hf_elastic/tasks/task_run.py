"""What all sizes of a model answer in every split of a task, with their scores and costs."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.utils import logging

from ..checkpoints import load_elastic, load_tokenizer
from ..compression.cost import count_flops, count_parameters, measure_latency
from ..compression.rank import Importance
from ..hub.details import TrainingDetails
from ..training.arguments import ElasticTrainingArguments
from ..training.family import FamilyRun
from ..training.trainer import ElasticTrainer
from .benchmarks import HUB_IDS, find_task
from .encoding import collator_for, encode_split
from .label_order import suspect_label_order
from .perturbations import PERTURBATIONS, PerturbedFormat
from .post_processing import PostProcessing
from .predictions import Predictions
from .preprocessing import Preprocessing, saved_preprocessing
from .scoring import score
from .size_predictions import predict_sizes
from .task import Task
from .task_data import TaskData
from .task_result import Scores, SizeCost, TaskResult

if TYPE_CHECKING:
    import datasets

logger = logging.get_logger(__name__)

# Rows that post-processing is fitted on; no split of a benchmark has that name.
HELD_OUT = "held_out"
POST_PROCESSING_NAME = "post_processing.json"


@dataclass(frozen=True)
class TaskRun:
    """What a model gives on a task.

    Args:
        data: The rows that were trained and predicted, those held out among them.
        trainer: The trainer of the supernet.
        predictions: What each size predicts, by split and size; post-processed.
        post_processing: What was done to the logits of each size.
        max_length: Tokens to which a text was cut.
        seconds: Time of each phase.
        importance: What the units were ranked by, if they were.
        together: How it was trained with other tasks, for readers; empty if it was trained alone.
    """

    data: TaskData
    trainer: ElasticTrainer
    predictions: dict[str, dict[str, Predictions]]
    post_processing: dict[str, PostProcessing]
    max_length: int
    seconds: dict[str, float] = field(default_factory=dict)
    importance: Importance | None = None
    together: str = ""

    @cached_property
    def scores(self) -> Scores:
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

    def robustness(self, kinds: Sequence[str] = tuple(PERTURBATIONS)) -> Scores:
        """Scores the first labelled split with its texts perturbed, see [`perturb`].

        Args:
            kinds (`Sequence[str]`, *optional*):
                Which of [`PERTURBATIONS`]; all by default.

        Returns:
            The task's metrics by kind, size and name.
        """
        task, split = self.data.task, self.data.scored_splits[0]
        return {
            kind: self._scores_of(
                split, self.data.splits[split], replace(task, input_format=PerturbedFormat(task.input_format, kind))
            )
            for kind in kinds
        }

    def score_rows(self, rows: "datasets.Dataset", name: str) -> dict[str, dict[str, float]]:
        """Scores labelled rows that are none of the task's own, such as those of another domain.

        Args:
            rows (`datasets.Dataset`):
                What [`read_other_rows`] gave.
            name (`str`):
                What they are called.

        Returns:
            The task's metrics by size and name.
        """
        return self._scores_of(name, rows, self.data.task)

    def _scores_of(self, name: str, rows: "datasets.Dataset", read_as: Task) -> dict[str, dict[str, float]]:
        by_size = _predict_split(self.trainer, read_as, name, rows, self.max_length)
        return {
            size: score(self.data.task, rows.to_list(), self.post_processing[size].applied(raw).answers)
            for size, raw in by_size.items()
        }

    def save_supernet(self, folder: str | Path) -> None:
        """Saves the supernet with all that an export and a later use on the task need.

        Args:
            folder (`str` or `Path`):
                The folder to write.
        """
        task, split = self.data.task, self.data.scored_splits[0]
        others = [other for other in task.validation_splits if other in self.scores and other != split]
        FamilyRun(self.trainer, self.scores[split], self.seconds).save(folder)
        Preprocessing.from_dict(self.trainer.elastic_model.config.preprocessing).save(folder)
        values = {size: json.loads(processing.to_json()) for size, processing in self.post_processing.items()}
        (Path(folder) / POST_PROCESSING_NAME).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        TrainingDetails(
            dataset=f"{task.title} ({task.benchmark} {task.name}){self.together}",
            dataset_id=HUB_IDS[task.benchmark],
            dataset_config=task.name,
            dataset_split=split,
            other_splits={other: self.scores[other] for other in others},
            settings={"training rows": len(self.data.train), "longest input (tokens)": self.max_length},
            language="en",
            limits=_limits_of(self.post_processing),
            run=self.trainer.run_record,
        ).save(folder)

    def result(self, request: dict[str, Any], seed: int, fold: int | None = None) -> TaskResult:
        """Gives what is to be kept of the scores, with the costs of each size, which are measured now.

        Args:
            request (`dict[str, Any]`):
                What was asked for.
            seed (`int`):
                Seed of the training.
            fold (`int`, *optional*):
                Number of the fold of a cross-validation.
        """
        task, model = self.data.task, self.trainer.elastic_model
        costs = {}
        for size in next(iter(self.predictions.values())):
            subnet = self.trainer.subnets[size]
            parameters = count_parameters(model, subnet)
            costs[size] = SizeCost(
                parameters.total,
                parameters.encoder,
                count_flops(model, subnet, self.max_length),
                measure_latency(model, subnet, self.max_length).milliseconds,
            )
        rows = {split: len(rows) for split, rows in self.data.splits.items()}
        return TaskResult(
            task.benchmark, task.name, seed, request, self.scores, costs, self.max_length, rows, self.seconds, fold
        )


def predicted_run(
    trainer: ElasticTrainer,
    data: TaskData,
    max_length: int,
    seconds: Mapping[str, float],
    importance: Importance | None,
) -> TaskRun:
    """Predicts every split of a task with all sizes, and fits the post-processing.

    Args:
        trainer ([`ElasticTrainer`]):
            Of the trained supernet.
        data ([`TaskData`]):
            The rows, those held out among them, see [`hold_out`].
        max_length (`int`):
            Tokens to which a text is cut.
        seconds (`Mapping[str, float]`):
            Time of each phase of the training.
        importance ([`~hf_elastic.compression.rank.Importance`], *optional*):
            What the units were ranked by.
    """
    predictions = _predict(trainer, data, max_length)
    post_processing = _fit(data.task, predictions.pop(HELD_OUT, None), list(trainer.subnets))
    _apply(data.task, predictions, post_processing)
    return TaskRun(data, trainer, predictions, post_processing, max_length, dict(seconds), importance)


def answer_task(folder: str | Path, data: TaskData, batch_size: int = 64) -> TaskRun:
    """Predicts every split of a task with each size of a supernet that was trained on it, or on its diagnostic's task.

    Args:
        folder (`str` or `Path`):
            What [`TaskRun.save_supernet`] wrote.
        data ([`TaskData`]):
            The rows.
        batch_size (`int`, defaults to 64):
            Examples per batch.

    Raises:
        FileNotFoundError: If there is no such supernet.
        ValueError: If it was trained on another task, or with other inputs.
    """
    task = data.task
    if not Path(folder).is_dir():
        trained = f"{task.name} is answered by a model of {task.model_of}. " if task.model_of else ""
        raise FileNotFoundError(
            f"{trained}There is no supernet in {folder}: train {task.model_of or task.name} first."
        )
    model, tokenizer = load_elastic(folder), load_tokenizer(folder)
    saved = saved_preprocessing(folder, model.config)
    if saved is None:
        raise ValueError(f"{folder} does not say what it was trained on: train it with `hf-elastic {task.benchmark}`.")
    saved.check(Preprocessing.of(task, tokenizer, saved.max_length))
    with tempfile.TemporaryDirectory() as unused:
        args = ElasticTrainingArguments(unused, per_device_eval_batch_size=batch_size, report_to="none")
        trainer = ElasticTrainer(
            model, args, processing_class=tokenizer, data_collator=collator_for(task.input_format.head, tokenizer)
        )
        predictions = _predict(trainer, data, saved.max_length)
    path = Path(folder) / POST_PROCESSING_NAME
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    post_processing = {
        size: PostProcessing.from_json(json.dumps(stored[size])) if size in stored else PostProcessing()
        for size in trainer.subnets
    }
    _apply(task, predictions, post_processing)
    return TaskRun(data, trainer, predictions, post_processing, saved.max_length)


def _predict(trainer: ElasticTrainer, data: TaskData, max_length: int) -> dict[str, dict[str, Predictions]]:
    """The predictions by split and size, of all splits but the training's."""
    return {
        split: _predict_split(trainer, data.task, split, rows, max_length)
        for split, rows in data.splits.items()
        if split != data.task.train_split
    }


def _predict_split(
    trainer: ElasticTrainer, task: Task, split: str, rows: "datasets.Dataset", max_length: int
) -> dict[str, Predictions]:
    encoded = encode_split(task, rows, trainer.processing_class, max_length, with_labels=False)
    if task.input_format.head == "multiple-choice":  # its collator wants labels, which nothing reads
        encoded = encoded._replace(dataset=encoded.dataset.add_column("labels", [0] * len(rows)))
    original, of_split = find_task(task.benchmark, task.name), rows.to_list()
    return {
        size: Predictions.of(original, split, of_split, encoded.counts, logits)
        for size, logits in predict_sizes(trainer, encoded).items()
    }


def _apply(
    task: Task, predictions: Mapping[str, dict[str, Predictions]], post_processing: Mapping[str, PostProcessing]
) -> None:
    for split, by_size in predictions.items():
        for size, raw in by_size.items():
            by_size[size] = post_processing[size].applied(raw)
        _warn_of_label_order(task, split, next(iter(by_size.values())))


def _limits_of(post_processing: Mapping[str, PostProcessing]) -> str | None:
    """What a card has to say of metrics that others get only with the same thresholds."""
    fitted = {size: of for size, of in post_processing.items() if of.threshold is not None}
    if not fitted:
        return None
    values = [f"`{size}` {of.threshold:.3f} and {of.temperature:.3f}" for size, of in fitted.items()]
    return (
        "The metrics are those with decision thresholds that were fitted on held-out training rows: label 1 is the "
        "answer if its probability, of the logits divided by a temperature, is above a threshold. Threshold and "
        f"temperature are: {', '.join(values)}."
    )


def _fit(task: Task, held_out: Mapping[str, Predictions] | None, sizes: Sequence[str]) -> dict[str, PostProcessing]:
    if held_out is None or task.label_range is not None:
        return dict.fromkeys(sizes, PostProcessing(label_range=task.label_range))
    return {size: PostProcessing.fit(task, of.logits, np.asarray(of.example_labels)) for size, of in held_out.items()}


def _warn_of_label_order(task: Task, split: str, predictions: Predictions) -> None:
    if not task.label_names or task.label_column != "label" or predictions.labels is None:
        return
    order = suspect_label_order(predictions.labels, predictions.answers, len(task.label_names))
    if order is not None:
        meant = ", ".join(f"{task.label_names[i]} by {task.label_names[j]}" for j, i in enumerate(order) if i != j)
        logger.warning(f"The scores on {task.name} {split} are as if labels were exchanged: the model means {meant}.")
