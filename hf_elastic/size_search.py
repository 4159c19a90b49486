"""Sizes of a trained text classifier under a budget: from a supernet and labelled text to named sizes with figures."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding

from .checkpoints import load_elastic, load_tokenizer
from .compression.rank import score_units
from .compression.search import search
from .compression.search_result import SearchResult
from .compression.search_settings import SearchSettings
from .modeling.modeling_elastic import ElasticPreTrainedModel
from .tasks.text_classification import TextClassificationData, encode
from .training.dataset_metric import DatasetMetric
from .training.distillation_proxy import DistillationProxy


class SizeSearch(NamedTuple):
    """What a search of sizes gives.

    Args:
        model ([`ElasticPreTrainedModel`]): The supernet, with the found sizes named.
        result ([`~hf_elastic.compression.search_result.SearchResult`]): What was found, and how.
        scores (`dict[str, dict[str, float]]`): Metrics on the test rows, by size.
        data ([`TextClassificationData`]): What was chosen by (validation) and what the scores are of (test).
    """

    model: ElasticPreTrainedModel
    result: SearchResult
    scores: dict[str, dict[str, float]]
    data: TextClassificationData


def search_text_classifier(
    source: str | Path,
    data: TextClassificationData,
    limits: Mapping[str, float],
    n: int = 1,
    name: str = "found",
    metric: str | None = None,
    settings: SearchSettings | None = None,
    max_length: int = 128,
    batch_size: int = 32,
    proxy_rows: int = 512,
    importance_rows: int = 256,
    seed: int = 42,
    on_phase: Callable[[str], None] | None = None,
) -> SizeSearch:
    """Searches sizes of a trained text classifier.

    Sizes are ranked by their distillation loss on training rows, chosen by the metric on validation rows, and scored
    on test rows, which the search does not see; without any, on a half of the validation rows.

    Args:
        source (`str` or `Path`):
            Folder or Hub id of a trained supernet.
        data ([`TextClassificationData`]):
            The labelled text that it was trained on, with its splits.
        limits (`Mapping[str, float]`):
            What a size may cost: `max_params`, `max_flops`, `max_latency_ms` and `max_memory_mb` of [`search`].
        n, name, settings:
            As [`search`] takes them.
        metric (`str`, *optional*):
            The metric to choose by. The first of the data's by default.
        max_length (`int`, defaults to 128):
            Tokens to which a text is cut.
        batch_size (`int`, defaults to 32):
            Rows per pass.
        proxy_rows (`int`, defaults to 512):
            Training rows to rank sizes by.
        importance_rows (`int`, defaults to 256):
            Training rows to score units by, for sizes that keep the most important ones; 0 leaves these sizes out.
        seed (`int`, defaults to 42):
            Seed of the choice of rows.
        on_phase (`Callable[[str], None]`, *optional*):
            Called with the name of each phase when it begins: `"data"`, `"search"`, `"evaluate"`.

    Raises:
        ValueError, TypeError, OSError, ImportError: If supernet, data, limits and settings do not fit together, or no
            size keeps the limits.
    """
    announce = on_phase or (lambda phase: None)
    announce("data")
    data = data.with_test(seed)
    model, tokenizer = load_elastic(source), load_tokenizer(source)
    encoded = encode(data.limit(max(proxy_rows, importance_rows), seed), tokenizer, max_length)
    collator = DataCollatorWithPadding(tokenizer)
    rows = encoded["train"].shuffle(seed)

    def batches(number: int) -> DataLoader:
        return DataLoader(rows.select(range(min(number, len(rows)))), batch_size, collate_fn=collator)

    def scored_by(split: str) -> DatasetMetric:
        return DatasetMetric(
            encoded[split], data.compute_metrics, metric, processing_class=tokenizer, batch_size=batch_size
        )

    announce("search")
    result = search(
        model,
        scored_by("validation"),
        **limits,
        n=n,
        name=name,
        proxy_fn=DistillationProxy(model, batches(proxy_rows)),
        importance=(lambda: score_units(model, batches(importance_rows))) if importance_rows else None,
        settings=settings,
    )
    announce("evaluate")
    return SizeSearch(model, result, _test_scores(model, result, scored_by("test")), data)


def _test_scores(
    model: ElasticPreTrainedModel, result: SearchResult, metric: DatasetMetric
) -> dict[str, dict[str, Any]]:
    """Gives the metrics of the found sizes and, to compare, of the full model."""
    scores = {}
    for name, subnet in {**result, "(full model)": None}.items():
        with model.use_subnet(subnet):
            scores[name] = metric.metrics(model)
    return scores
