"""The arguments of an export, checked: everything that can be wrong with them is found here, before any work."""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import SubnetConfig
from .details import TrainingDetails
from .formats import check_formats
from .heads import HEADS
from .staging import check_name


@dataclass(frozen=True)
class ExportRequest:
    """What [`export_family`] was asked for; its arguments describe the fields."""

    model: ElasticPreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    subnets: dict[str, SubnetConfig]
    formats: list[str]
    metrics: dict[str, dict[str, float]]
    details: TrainingDetails
    sequence_length: int
    primary_metric: str | None
    greater_is_better: bool

    @classmethod
    def checked(
        cls,
        model: ElasticPreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        subnets: Sequence[str] | Mapping[str, SubnetConfig] | None,
        formats: Sequence[str],
        metrics: Mapping[str, Mapping[str, float]] | None,
        details: TrainingDetails | Mapping[str, Any] | None,
        sequence_length: int,
        primary_metric: str | None,
        greater_is_better: bool | None,
    ) -> ExportRequest:
        """Checks the arguments of [`export_family`] and fills in what they leave open.

        Raises:
            ValueError, TypeError, ImportError: As [`export_family`] says.
        """
        _check_model(model, tokenizer)
        sizes = _checked_subnets(model.config, subnets)
        values = _checked_metrics({} if metrics is None else metrics, sizes)
        primary_metric = _checked_primary_metric(primary_metric, values)
        _check_sequence_length(sequence_length, model)
        if greater_is_better is None:
            greater_is_better = not (primary_metric or "").endswith("loss")
        if not isinstance(greater_is_better, bool):
            raise TypeError(f"greater_is_better={greater_is_better!r}: expected True, False or None.")
        request = cls(
            model=model,
            tokenizer=tokenizer,
            subnets=sizes,
            formats=check_formats(formats),
            metrics=values,
            details=TrainingDetails.read(details),
            sequence_length=sequence_length,
            primary_metric=primary_metric,
            greater_is_better=greater_is_better,
        )
        check_extra("jinja2", *(["matplotlib"] if primary_metric else []))
        return request


def _check_model(model: ElasticPreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    if not isinstance(model, ElasticPreTrainedModel):
        raise TypeError(f"model is a {type(model).__name__}, and only a supernet has sizes: convert() it first.")
    if type(model).__name__ not in HEADS:
        raise TypeError(f"{type(model).__name__} cannot be exported: possible are {list(HEADS)}.")
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise TypeError(
            f"tokenizer is a {type(tokenizer).__name__}: give the model's, e.g. AutoTokenizer.from_pretrained(source)."
        )
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"The tokenizer has {len(tokenizer)} tokens, and the model embeds {model.config.vocab_size}: give the "
            "tokenizer that belongs to it, or call model.resize_token_embeddings(len(tokenizer)) before training."
        )


def _check_sequence_length(sequence_length: int, model: ElasticPreTrainedModel) -> None:
    if isinstance(sequence_length, bool) or not isinstance(sequence_length, int):
        raise TypeError(f"sequence_length={sequence_length!r}: expected a whole number of tokens.")
    longest = model.base_model.embeddings.available_positions
    if not 1 <= sequence_length <= longest:
        raise ValueError(f"sequence_length={sequence_length} must lie between 1 and the model's {longest} positions.")


def _checked_subnets(
    config: ElasticConfig, subnets: Sequence[str] | Mapping[str, SubnetConfig] | None
) -> dict[str, SubnetConfig]:
    if subnets is None:
        subnets = config.subnets
    if isinstance(subnets, str):
        raise TypeError(f"subnets={subnets!r}: give a sequence of names, e.g. subnets=[{subnets!r}].")
    if not isinstance(subnets, Mapping):
        unknown = [name for name in subnets if name not in config.subnets]
        if unknown:
            raise ValueError(
                f"Unknown subnet {unknown[0]!r}: this model has {sorted(config.subnets)}. Name it in "
                "model.config.subnets, or give its size: subnets={name: SubnetConfig(...)}."
            )
        subnets = {name: config.subnets[name] for name in subnets}
    if not subnets:
        raise ValueError(
            "There is no size to export: name some with model.config.subnets = {name: SubnetConfig(...)}."
        )
    lower = [str(name).lower() for name in subnets]
    for name in subnets:
        if lower.count(str(name).lower()) > 1:
            raise ValueError(
                f"Subnet name {name!r} differs from another one in case alone: some filesystems mix them up."
            )
        check_name(str(name))
    trial = copy.deepcopy(config)  # the configuration itself checks names, sizes and nesting
    trial.subnets = {**config.subnets, **subnets}
    return {name: trial.subnets[name] for name in subnets}


def _checked_metrics(
    metrics: Mapping[str, Mapping[str, float]], subnets: dict[str, SubnetConfig]
) -> dict[str, dict[str, float]]:
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics={metrics!r}: give a mapping by size, e.g. {{'small': {{'accuracy': 0.9}}}}.")
    checked: dict[str, dict[str, float]] = {}
    for name, values in metrics.items():
        if name not in subnets:
            raise ValueError(f"metrics has values for {name!r}, which is not exported: exported are {list(subnets)}.")
        if not isinstance(values, Mapping):
            raise TypeError(
                f"metrics[{name!r}]={values!r}: give a mapping of names to numbers, e.g. {{'accuracy': 0.9}}."
            )
        checked[name] = {}
        for metric, value in values.items():
            if not isinstance(metric, str):
                raise TypeError(
                    f"metrics[{name!r}] has the key {metric!r}: expected a metric's name, e.g. 'accuracy'."
                )
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise TypeError(f"metrics[{name!r}][{metric!r}]={value!r} is no number.") from None
            if not math.isfinite(number):
                raise ValueError(f"metrics[{name!r}][{metric!r}]={value!r} is not finite: leave it out.")
            checked[name][metric] = number
    return checked


def _checked_primary_metric(primary_metric: str | None, metrics: dict[str, dict[str, float]]) -> str | None:
    known = list(dict.fromkeys(metric for values in metrics.values() for metric in values))
    if primary_metric is None:
        return known[0] if known else None
    if primary_metric not in known:
        raise ValueError(f"primary_metric={primary_metric!r} is not among the metrics given: they are {known}.")
    return primary_metric


def check_extra(*modules: str) -> None:
    """Checks that what the extra `export` installs is there.

    Raises:
        ImportError: If a module is missing; says how to install it.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:
            raise ImportError(f'This needs `{module}`: pip install "hf_elastic[export]"') from None
