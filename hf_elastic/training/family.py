"""One training run for all sizes: fine-tune the full model, rank its units, train all sizes together, evaluate.

The order matters: ranking needs gradients of the task, hence comes after the fine-tuning; and what the small sizes are
cut from is only settled by it, hence all sizes are trained afterwards.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset
from transformers import EvalPrediction, PreTrainedTokenizerBase
from transformers.trainer_utils import has_length
from transformers.utils import logging

from ..compression.checks import check_plain_weights
from ..compression.rank import Importance, rank
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from .arguments import ElasticTrainingArguments
from .data_fingerprint import DataFingerprint
from .finetuning import finetune, finetuning_arguments
from .outcome import TrainingOutcome
from .progress import show_loss_only
from .provenance import RunRecord
from .trainer import ElasticTrainer

logger = logging.get_logger(__name__)

METRICS_NAME = "metrics.json"
LOG_NAME = "training_log.json"
# Arguments of the trainer that say how the model is trained, be it alone or in all sizes.
_OF_FINETUNING = ("compute_loss_func", "optimizer_cls_and_kwargs")


@dataclass(frozen=True)
class FamilyRun:
    """What a run gives.

    Args:
        trainer ([`ElasticTrainer`]): The trainer of all sizes, for further evaluations.
        metrics (`dict[str, dict[str, float]]`): Metrics on `scored_dataset` by size; empty without one.
        seconds (`dict[str, float]`): Wall-clock time of each phase by its name.
        test_dataset (`Dataset`, *optional*): The test data, if there were some.
        importance ([`~hf_elastic.compression.rank.Importance`], *optional*): What the units were ranked by, if they
            were.
    """

    trainer: ElasticTrainer
    metrics: dict[str, dict[str, float]]
    seconds: dict[str, float]
    test_dataset: Dataset | None = None
    importance: Importance | None = None

    @property
    def model(self) -> ElasticPreTrainedModel:
        """The trained supernet."""
        return self.trainer.elastic_model

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """The metrics without the loss, which says little beside them."""
        return {size: {k: v for k, v in metrics.items() if k != "loss"} for size, metrics in self.metrics.items()}

    @property
    def scored_dataset(self) -> Dataset | None:
        """What the metrics are of: the test data, or the evaluation data where there are none."""
        return self.trainer.eval_dataset if self.test_dataset is None else self.test_dataset

    @property
    def outcome(self) -> TrainingOutcome:
        """How far the common training came, and what ended it."""
        return TrainingOutcome.of(self.trainer)

    @property
    def record(self) -> RunRecord:
        """What the common training can be told by and repeated with, and the test data."""
        record = self.trainer.run_record
        if self.test_dataset is None:
            return record
        return replace(record, data={**record.data, "test": DataFingerprint.of(self.test_dataset)})

    def evaluate(self, dataset: Dataset) -> dict[str, dict[str, float]]:
        """Evaluates every size on other data.

        Returns:
            Metrics by size.

        Raises:
            TypeError: If it is a dictionary of datasets.
        """
        _check_one_dataset(dataset)
        return _evaluate(self.trainer, dataset)

    def save(self, output_dir: str | Path) -> None:
        """Saves the supernet with its tokenizer, for an export later.

        Beside it lie the scores (`metrics.json`), the record of the run (`run.json`), and how the common training went
        (`training_log.json`): how far it came, and all that it logged.

        Args:
            output_dir (`str` or `Path`):
                The folder to write.
        """
        output_dir = Path(output_dir)
        self.record.save(output_dir)
        self.model.save_pretrained(output_dir)
        if self.trainer.processing_class is not None:
            self.trainer.processing_class.save_pretrained(output_dir)
        log = {"outcome": self.outcome.to_dict(), "log": self.trainer.state.log_history}
        for name, values in ((METRICS_NAME, self.scores), (LOG_NAME, log)):
            (output_dir / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def train_family(
    model: ElasticPreTrainedModel,
    args: ElasticTrainingArguments,
    train_dataset: Dataset,
    eval_dataset: Dataset | None = None,
    processing_class: PreTrainedTokenizerBase | None = None,
    compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
    data_collator: Callable[[list[Any]], dict[str, Any]] | None = None,
    test_dataset: Dataset | None = None,
    finetune_epochs: float = 0.0,
    rank_examples: int = 256,
    on_phase: Callable[[str], None] | None = None,
    check: Callable[[ElasticTrainer], Any] | None = None,
    trainer_class: type[ElasticTrainer] = ElasticTrainer,
    **trainer_arguments: Any,
) -> FamilyRun:
    """Trains all sizes of a supernet in one run.

    Args:
        model ([`ElasticPreTrainedModel`]):
            A supernet with a head and with named subnets. It is trained in place.
        args ([`ElasticTrainingArguments`]):
            How all sizes are trained together. The fine-tuning before it takes the same settings, as far as they
            concern one size, see [`finetuning_arguments`].
        train_dataset (`Dataset`):
            Training data with labels. Units are ranked by a part of it.
        eval_dataset (`Dataset`, *optional*):
            Data that the common training may look at, to choose a checkpoint or its end by, if `args.eval_strategy`
            says so. One dataset; [`FamilyRun.evaluate`] takes further ones.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer; it pads the batches, and is saved with checkpoints.
        compute_metrics (`Callable`, *optional*):
            As [`~transformers.Trainer`] takes it.
        data_collator (`Callable`, *optional*):
            As [`~transformers.Trainer`] takes it. By default rows are padded by `processing_class`.
        test_dataset (`Dataset`, *optional*):
            Data to score the sizes on at the end, which no training looks at. By default they are scored on
            `eval_dataset`.
        finetune_epochs (`float`, defaults to 0):
            Epochs of the full model alone, before the ranking. 0 if the model is fine-tuned already.
        rank_examples (`int`, defaults to 256):
            Training examples to rank the units by, rounded up to whole batches. 0 leaves the order as it is,
            which adapters of the projections need.
        on_phase (`Callable[[str], None]`, *optional*):
            Called with the name of each phase when it begins: `"check"`, `"fine-tune"`, `"rank"`, `"co-train"`,
            `"evaluate"`.
        check (`Callable[[ElasticTrainer], Any]`, *optional*):
            Called with the trainer of all sizes before any training, which it stops by raising an error. E.g.
            `lambda trainer: check_training(trainer, quick=True).raise_if_failed()`.
        trainer_class (`type[ElasticTrainer]`, defaults to [`ElasticTrainer`]):
            What trains, alone and together.
        **trainer_arguments:
            Other arguments of [`ElasticTrainer`], such as `teachers`. The fine-tuning has `compute_loss_func` and
            `optimizer_cls_and_kwargs` as well.

    Returns:
        [`FamilyRun`]: The trained model, the metrics by size, and the time each phase took.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If an argument is out of range, or model, data and arguments do not fit together.
    """
    _check_amounts(finetune_epochs, rank_examples, train_dataset)
    _check_one_dataset(eval_dataset)
    _check_one_dataset(test_dataset)
    data = {"train_dataset": train_dataset, "processing_class": processing_class, "data_collator": data_collator}
    evaluation = {"eval_dataset": eval_dataset, "compute_metrics": compute_metrics}
    kept = trainer_class.args_of_one_size
    finetuning = finetuning_arguments(args, finetune_epochs, kept) if finetune_epochs else None
    of_model = {name: value for name, value in trainer_arguments.items() if name in _OF_FINETUNING}
    trainer = trainer_class(model, args, **data, **evaluation, **trainer_arguments)
    if rank_examples:
        check_plain_weights(trainer.elastic_model)  # as the ranking does, but before the fine-tuning
    if finetune_epochs:
        trainer.objective.distiller.open_caches(train_dataset)  # those of other data are an error now, not after it
    show_loss_only(trainer, "All sizes")
    phases = _Phases(on_phase)
    if check is not None:
        phases.announce("check")
        check(trainer)
    if finetune_epochs:
        with phases.timed("fine-tune"):
            finetune(trainer, finetuning, **data, **of_model)
    importance = None
    if rank_examples:
        with phases.timed("rank"):
            batches = math.ceil(rank_examples / args.train_batch_size)
            importance = rank(trainer.elastic_model, random_batches(trainer), max_batches=batches)
    with phases.timed("co-train"):
        trainer.train()
    metrics = {}
    if eval_dataset is not None or test_dataset is not None:
        with phases.timed("evaluate"):
            metrics = _evaluate(trainer, test_dataset)
    return FamilyRun(trainer, metrics, phases.seconds, test_dataset, importance)


def read_metrics(path: str | Path, sizes: Iterable[str]) -> dict[str, dict[str, float]]:
    """Reads metrics that [`FamilyRun.save`] wrote.

    Args:
        path (`str` or `Path`):
            The JSON file, or the folder of the supernet; none are given where that has no such file.
        sizes (`Iterable[str]`):
            Names of the sizes that are wanted.

    Returns:
        Metrics by size.

    Raises:
        ValueError: If the file does not hold metrics by size.
    """
    path = Path(path)
    file = path if path.suffix == ".json" else path / METRICS_NAME
    if file is not path and not file.is_file():
        return {}
    try:
        metrics = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not valid JSON: {error}.") from None
    if not isinstance(metrics, dict):
        raise ValueError(f'{file} should hold metrics by size, e.g. {{"small": {{"accuracy": 0.9}}}}.')
    return {size: metrics[size] for size in sizes if size in metrics}


def random_batches(trainer: ElasticTrainer) -> DataLoader:
    """Training batches in random order: those grouped by length begin with the longest examples."""
    strategy = trainer.args.train_sampling_strategy
    trainer.args.train_sampling_strategy = "random"
    try:
        return trainer.get_train_dataloader()
    finally:
        trainer.args.train_sampling_strategy = strategy


def _check_amounts(finetune_epochs: float, rank_examples: int, train_dataset: Dataset) -> None:
    for name, value in (("finetune_epochs", finetune_epochs), ("rank_examples", rank_examples)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}={value} is negative or not finite. Give 0 to leave this out.")
    if finetune_epochs and not has_length(train_dataset):
        raise ValueError(
            f"finetune_epochs={finetune_epochs}, but a {type(train_dataset).__name__} has no length to count epochs "
            "by. Give a dataset with a length, or fine-tune the full model before and give finetune_epochs=0."
        )


def _check_one_dataset(dataset: Any) -> None:
    if isinstance(dataset, Mapping):
        raise TypeError(
            f"The evaluation data are a {type(dataset).__name__} of {', '.join(map(repr, dataset))}. Give one "
            "dataset, since a size has one set of scores, and evaluate the others with run.evaluate(dataset)."
        )


def _evaluate(trainer: ElasticTrainer, dataset: Dataset | None = None) -> dict[str, dict[str, float]]:
    """Metrics by size, the largest first."""
    trainer.evaluate(dataset)
    sizes = trainer.sampler.sizes
    return {name: trainer.subnet_metrics[name] for name in sorted(sizes, key=lambda name: -sizes[name])}


class _Phases:
    """Announces and times the phases."""

    def __init__(self, on_phase: Callable[[str], None] | None) -> None:
        self.on_phase = on_phase
        self.seconds: dict[str, float] = {}

    def announce(self, name: str) -> None:
        logger.info(f"Phase: {name}")
        if self.on_phase is not None:
            self.on_phase(name)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        self.announce(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
