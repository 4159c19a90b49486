"""Checks before the training: each error names the value and the remedy, long before the first step."""

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from transformers.trainer_utils import has_length, unwrap_peft_model
from transformers.utils import CONFIG_NAME

from ..compression.units import layer_and_name, replaced_modules, units_of
from ..modeling.modeling_elastic import (
    ElasticForMaskedLM,
    ElasticForMultipleChoice,
    ElasticForSequenceClassification,
    ElasticForTokenClassification,
    ElasticPreTrainedModel,
)
from ..modeling.subnet_elastic import LayerSize, SubnetConfig
from .arguments import ElasticTrainingArguments
from .attention_states import RECORDABLE
from .distillation import IGNORED_LABEL
from .feature_distillation import OF_ATTENTION

# The collators of transformers make "labels" of the others.
LABEL_COLUMNS = ("labels", "label", "label_ids")
# Enough to find labels that are off by one or of another label set, without reading a corpus of tokens.
SAMPLED_ROWS = 1000
# Names of metrics begin with them, and they are similar to one another and to names of sizes.
AVERAGES = ("mean", "micro", "macro")


def check_model(model: nn.Module) -> None:
    """Raises TypeError unless the model is a supernet with a head, with or without adapters."""
    elastic = unwrap_peft_model(model)
    if not isinstance(elastic, ElasticPreTrainedModel):
        raise TypeError(
            f"ElasticTrainer trains elastic models, not a {type(elastic).__name__}. Turn it into one with "
            "hf_elastic.convert(model)."
        )
    if elastic.base_model is elastic:
        raise TypeError(
            f"A {type(elastic).__name__} has no head and so no loss. Load the checkpoint with the class of your task, "
            "e.g. ElasticForSequenceClassification."
        )


def check_subnets(model: ElasticPreTrainedModel, subnets: Mapping[str, SubnetConfig]) -> None:
    """Checks that there are named sizes, and that the model can run them.

    Args:
        model: The supernet, without the wrapper of adapters.
        subnets: What is trained, by name.

    Raises:
        ValueError: If no size is named, or a size runs a part of a projection that only runs as a whole.
    """
    if not model.config.subnets:
        raise ValueError(
            "model.config.subnets is empty, so there are no sizes to train. Name them, e.g. model.config.subnets = "
            '{"large": SubnetConfig(), "small": SubnetConfig.scaled(model.config, width=0.5, depth=0.5)}.'
        )
    full = SubnetConfig().layer_sizes(model.config)
    for path, module in replaced_modules(model):
        layer, _ = layer_and_name(f"{path}.weight")
        for name, subnet in subnets.items():
            for size in subnet.layer_sizes(model.config):
                if layer in (None, size.weights):
                    _check_whole(path, module, name, size, full[size.layer])


def _check_whole(path: str, module: nn.Module, name: str, size: LayerSize, full: LayerSize) -> None:
    """Checks that a size runs all of a module that cannot run in part."""
    reduced = {
        "heads": size.num_attention_heads != full.num_attention_heads,
        "neurons": size.intermediate_size != full.intermediate_size,
        "hidden": size.hidden_size != full.hidden_size,
    }
    reduced |= {"head_dims": reduced["heads"], "features": reduced["hidden"], "embedding": reduced["hidden"]}
    for units in units_of(f"{path}.weight"):
        if reduced.get(units):
            kind = f"{type(module).__module__}.{type(module).__qualname__}"
            noun = {"head_dims": "heads", "neurons": "neurons"}.get(units, "hidden units")
            raise ValueError(
                f"Size {name!r} has fewer {noun} in layer {size.layer}, but {path} is a {kind}, which cannot run in "
                "part. Name only sizes of fewer layers, or merge adapters first (merge_and_unload), or extract the "
                "size (hf_elastic.extract) and adapt that."
            )


def check_subnet_settings(
    args: ElasticTrainingArguments, model: ElasticPreTrainedModel, largest_first: Sequence[str]
) -> None:
    """Checks what the arguments say of single subnets.

    Args:
        args: The arguments.
        model: The supernet, without the wrapper of adapters.
        largest_first: Names of the subnets that are trained.

    Raises:
        ValueError: If a name is no subnet, none is left with a weight, or inputs are cut where they must not be.
    """
    for argument in ("subnet_weights", "subnet_max_lengths"):
        for name in getattr(args, argument):
            if name not in largest_first:
                raise ValueError(
                    f"{argument} names {name!r}, which is no subnet of the model. It has {', '.join(largest_first)}."
                )
    if not any(args.subnet_weights.get(name, 1) for name in largest_first):
        raise ValueError(f"subnet_weights={args.subnet_weights} is 0 for all subnets. Give at least one a weight.")
    if args.subnet_max_lengths:
        _check_lengths(args.subnet_max_lengths, model, largest_first)


def _check_lengths(lengths: Mapping[str, int], model: ElasticPreTrainedModel, largest_first: Sequence[str]) -> None:
    if not isinstance(model, (ElasticForSequenceClassification, ElasticForMultipleChoice)):
        raise ValueError(
            f"subnet_max_lengths={dict(lengths)} cuts inputs, but a {type(model).__name__} has labels of single "
            "tokens. Leave it out."
        )
    of_larger: float = math.inf
    for name in largest_first:
        length = lengths.get(name, math.inf)
        if length > of_larger:
            raise ValueError(
                f"subnet_max_lengths={dict(lengths)}: {name!r} would read more than a larger subnet, which it learns "
                "from. Give smaller subnets the same length or a shorter one."
            )
        of_larger = length


def check_resumed_subnets(checkpoint: str | Path | None, subnets: Mapping[str, SubnetConfig]) -> None:
    """Checks that a checkpoint was trained with the sizes that its training is to go on with.

    Args:
        checkpoint: Its folder; None, or one without a model's configuration, is not looked at.
        subnets: The sizes that the model names now.

    Raises:
        ValueError: If the checkpoint names other ones, or other sizes by the same names.
    """
    file = Path(checkpoint or "") / CONFIG_NAME
    if checkpoint is None or not file.is_file():
        return
    stored = json.loads(file.read_text(encoding="utf-8")).get("subnets", {})
    named = {name: subnet.to_dict() for name, subnet in subnets.items()}
    for name in sorted(stored.keys() | named.keys()):
        if stored.get(name) != named.get(name):
            raise ValueError(
                f"{checkpoint} was trained with {name}={stored.get(name)}, and the model has {name}="
                f"{named.get(name)} (None is no such size). Resume with the same model.config.subnets, or begin a new "
                "training from the checkpoint's model."
            )


def check_features(
    args: ElasticTrainingArguments, model: ElasticPreTrainedModel, subnets: Mapping[str, SubnetConfig]
) -> None:
    """Checks that the features which are to be compared exist.

    Args:
        args: The arguments.
        model: The supernet, without the wrapper of adapters.
        subnets: What is trained, by name.

    Raises:
        ValueError: If attention is to be compared that is not full, or a size cannot be cut into `relation_heads`.
    """
    config = model.config
    others = sorted(set(config.layer_types) - set(RECORDABLE))
    for kind in OF_ATTENTION:
        if getattr(args, f"{kind}_weight") and others:
            raise ValueError(
                f"{kind}_weight={getattr(args, f'{kind}_weight')}, but the model has layers of type {others[0]!r}, "
                f"whose attention cannot be compared. Set {kind}_weight=0, and compare hidden states instead."
            )
    if not args.relation_weight or args.relation_heads is None:
        return
    for name, subnet in subnets.items():
        for size in subnet.layer_sizes(config):
            width = size.num_attention_heads * config.head_dim
            if width % args.relation_heads:
                raise ValueError(
                    f"relation_heads={args.relation_heads} does not divide the width of the heads of subnet {name!r}, "
                    f"which is {width} in layer {size.layer}. Leave it out, or give a divisor of all."
                )


def check_metric(metric: str | None, subnets: Mapping[str, SubnetConfig], eval_dataset: Any, only_loss: bool) -> None:
    """Checks `metric_for_best_model` as far as names can be known before the first evaluation.

    Args:
        metric: The argument, with or without the leading `eval_`.
        subnets: Those that have metrics of their own.
        eval_dataset: One dataset, or a dictionary of them.
        only_loss: Whether the loss is the only metric, because there is no `compute_metrics`.

    Raises:
        ValueError: If no evaluation can give the metric.
    """
    if metric is None or isinstance(eval_dataset, Mapping):
        return
    name = metric.removeprefix("eval_")
    possible = ["loss", *(f"{scope}_loss" for scope in [*subnets, "mean"])]
    if only_loss and name.endswith("loss") and name not in possible:
        raise ValueError(f"metric_for_best_model={metric!r} is not evaluated. Choose one of {', '.join(possible)}.")
    scope, separator, _ = name.partition("_")
    is_known = scope in AVERAGES or any(name.startswith(f"{subnet}_") for subnet in subnets)
    similar = difflib.get_close_matches(scope, subnets, n=1, cutoff=0.75)
    if separator and similar and not is_known:
        raise ValueError(
            f"metric_for_best_model={metric!r} starts with the name of no subnet, but nearly with that of "
            f"{similar[0]!r}. Write it as {similar[0]}{name.removeprefix(scope)}, or name the metric or the subnet "
            "otherwise."
        )


def check_label_column(model: nn.Module, train_dataset: Any, label_names: Sequence[str]) -> None:
    """Checks that a dataset with columns has labels, and that they are numbers.

    Only valid where columns that the model does not know are removed, so that the collator cannot make labels of them.

    Args:
        model: The supernet, perhaps with adapters.
        train_dataset: The training data; those that name no columns are left alone.
        label_names: Inputs of the model that are labels.

    Raises:
        ValueError: If there is no column of labels, or it holds text. Names the columns, or a label.
    """
    columns = getattr(train_dataset, "column_names", None)
    if columns is None or isinstance(unwrap_peft_model(model), ElasticForMaskedLM):
        return  # the labels of a masked language model are the tokens that its collator masks
    known = [*label_names, *LABEL_COLUMNS]
    found = [name for name in known if name in columns]
    if not found:
        raise ValueError(
            f"train_dataset has no labels: its columns are {', '.join(columns)}. Rename the one of the labels, e.g. "
            f"dataset.rename_column(..., {known[0]!r})."
        )
    for example in _label_column(train_dataset, 1):
        if isinstance(example, str):
            raise ValueError(
                f"Column {found[0]!r} of train_dataset holds text, such as {example!r}, and labels are numbers. "
                f"Encode them, e.g. dataset.class_encode_column({found[0]!r}), and convert with as many labels."
            )


def check_datasets(model: nn.Module, train_dataset: Any, eval_dataset: Any) -> None:
    """Raises ValueError if the training data are empty, or a label of either does not exist in the model."""
    if train_dataset is not None and has_length(train_dataset) and len(train_dataset) == 0:
        raise ValueError("train_dataset is empty. Check the path, the split and any filter.")
    splits = eval_dataset if isinstance(eval_dataset, Mapping) else {"eval_dataset": eval_dataset}
    for name, dataset in {"train_dataset": train_dataset, **splits}.items():
        _check_labels(name, dataset, unwrap_peft_model(model))


def _check_labels(name: str, dataset: Any, model: ElasticPreTrainedModel) -> None:
    config = model.config
    if isinstance(model, ElasticForTokenClassification):
        labels = np.asarray(list(chain.from_iterable(_label_column(dataset, SAMPLED_ROWS))))
    elif isinstance(model, ElasticForSequenceClassification) and (
        config.problem_type == "single_label_classification" or (config.problem_type is None and config.num_labels > 1)
    ):
        labels = np.asarray(_label_column(dataset))
    else:
        return
    if labels.dtype.kind not in "iu":
        return  # floating point labels are several labels per example, and of text the collator has to make numbers
    wrong = labels[(labels != IGNORED_LABEL) & ((labels < 0) | (labels >= config.num_labels))]
    if wrong.size:
        raise ValueError(
            f"{name} has label {wrong.flat[0]}, but the model has num_labels={config.num_labels}: labels go from 0 to "
            f"{config.num_labels - 1}. Convert with as many labels as there are, or encode the labels again."
        )


def _label_column(dataset: Any, limit: int | None = None) -> list[Any]:
    """The labels of a dataset that gives them without side effects: a list, or one of the `datasets` library."""
    if isinstance(dataset, list):
        rows = [row for row in dataset[:limit] if isinstance(row, Mapping)]
        return [row[column] for row in rows for column in LABEL_COLUMNS if column in row]
    if hasattr(dataset, "select_columns") and has_length(dataset):
        for column in LABEL_COLUMNS:
            if column in dataset.column_names:
                return dataset.select_columns([column]).with_format(None)[:limit][column]
    return []
