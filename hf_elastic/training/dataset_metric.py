"""The true metric of a size: that of a `Trainer` on a dataset."""

from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from torch.utils.data import Dataset
from transformers import EvalPrediction, PreTrainedTokenizerBase, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from ..modeling.modeling_elastic import ElasticPreTrainedModel
from .data_fingerprint import DataFingerprint


class DatasetMetric:
    """Scores the size that is active in a model by a metric on a dataset; more is better. For [`search`].

    Args:
        dataset (`Dataset`):
            Rows with labels. To choose sizes by, rows that were held out of the training; what is reported has to be
            of other ones.
        compute_metrics (`Callable[[EvalPrediction], dict[str, float]]`):
            As [`~transformers.Trainer`] takes it.
        metric (`str`, *optional*):
            The metric's name. The first one by default.
        greater_is_better (`bool`, *optional*):
            Whether more of it is better; otherwise it is negated. By default yes, unless its name ends in `loss`.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer, which pads the rows.
        data_collator (`Callable`, *optional*):
            As [`~transformers.Trainer`] takes it.
        batch_size (`int`, defaults to 32):
            Rows per pass.

    Raises:
        ValueError: If it has no row; when it is called, if there is no such metric.
    """

    def __init__(
        self,
        dataset: Dataset,
        compute_metrics: Callable[[EvalPrediction], dict[str, float]],
        metric: str | None = None,
        greater_is_better: bool | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        data_collator: Callable[[list[Any]], dict[str, Any]] | None = None,
        batch_size: int = 32,
    ):
        if len(dataset) == 0:
            raise ValueError("The dataset has no row: give some that were held out of the training.")
        self.dataset, self.metric, self.greater_is_better = dataset, metric, greater_is_better
        self.compute_metrics, self.batch_size = compute_metrics, batch_size
        self.processing_class, self.data_collator = processing_class, data_collator
        self._trainer: Trainer | None = None

    @property
    def fingerprint(self) -> str:
        """Tells rows and metric from others, so that kept scores are not taken for those of others."""
        return f"{DataFingerprint.of(self.dataset).content_hash} {self.metric}"

    def __call__(self, model: ElasticPreTrainedModel) -> float:
        """Gives the metric of the active size."""
        metrics = self.metrics(model)
        name = self.metric or next(iter(metrics))
        if name not in metrics:
            raise ValueError(f"metric={name!r} is not among those that compute_metrics gives: {', '.join(metrics)}.")
        greater = not name.endswith("loss") if self.greater_is_better is None else self.greater_is_better
        return metrics[name] if greater else -metrics[name]

    def metrics(self, model: ElasticPreTrainedModel) -> dict[str, float]:
        """Gives all metrics of the active size."""
        if self._trainer is None or self._trainer.model is not model:
            self._trainer = self._make_trainer(model)
        output = self._trainer.predict(self.dataset)
        return self.compute_metrics(EvalPrediction(output.predictions, output.label_ids))

    def _make_trainer(self, model: ElasticPreTrainedModel) -> Trainer:
        with TemporaryDirectory() as folder:  # a trainer makes one
            args = TrainingArguments(
                folder,
                per_device_eval_batch_size=self.batch_size,
                dataloader_pin_memory=model.device.type != "cpu",
                report_to="none",
                disable_tqdm=True,
            )
            trainer = Trainer(model, args, data_collator=self.data_collator, processing_class=self.processing_class)
        trainer.remove_callback(PrinterCallback)  # which says what the bar does not
        return trainer
