"""From a pretrained checkpoint to a supernet with the same outputs."""

import copy
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ..modeling import modeling_elastic
from ..modeling.configuration_elastic import AUTO_MAP, ElasticConfig
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from .copies import load_copies
from .load import load_with_head
from .sources import START_AND_END, Head, Source, UnsupportedSourceError, find_source

logger = logging.get_logger(__name__)

# Tasks by the Auto class that loads a checkpoint for them.
TASKS = {
    "feature-extraction": "AutoModel",
    "masked-lm": "AutoModelForMaskedLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
}
# What `from_pretrained` takes that says where a checkpoint is, so that its configuration can be read first.
HUB_SETTINGS = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")
# Fields of the configuration that change how the converted layers attend.
ATTENTION_FIELDS = (
    "layer_types",
    "sliding_window",
    "num_global_tokens",
    "num_random_blocks",
    "attention_block_size",
    "attention_sparsity",
    "sparsity_penalty",
    "dense_fallback",
    "sparse_attention",
)
# Weights that no source has: the sparsities of attention that is made sparse.
NEW_WEIGHTS = (".sparsity_logit",)


def convert(source: str | Path | PreTrainedModel, task: str | None = None, **kwargs: Any) -> ElasticPreTrainedModel:
    """Makes a supernet of a pretrained encoder. Its logits are the source's, unless it is to attend in another way.

    Args:
        source (`str`, `Path` or `PreTrainedModel`):
            Hub id or folder of a checkpoint, or a loaded model, which is left as it is: BERT, RoBERTa, XLM-RoBERTa,
            CamemBERT, ELECTRA, DistilBERT or ModernBERT.
        task (`str`, *optional*):
            One of `"feature-extraction"`, `"masked-lm"`, `"sequence-classification"`, `"token-classification"`,
            `"question-answering"` and `"multiple-choice"`. By default what the checkpoint was saved for. A head that
            the checkpoint lacks is initialized, as `from_pretrained` does.
        **kwargs:
            How layers attend, if not as in the source, by fields of [`ElasticConfig`]: `sparse_attention=True`,
            `layer_types`, `sliding_window`, `num_global_tokens`, `num_random_blocks`, `attention_block_size`,
            `attention_sparsity`, `sparsity_penalty`, `dense_fallback`. Besides, for a Hub id or folder, what
            `from_pretrained` takes (`num_labels`, `id2label`, `ignore_mismatched_sizes`, `dtype`, `revision`, ...);
            for a loaded model, configuration fields of the head that `task` adds (`num_labels`, `id2label`, ...).

    Returns:
        `ElasticPreTrainedModel`: The supernet, with the label maps, data type, device and mode of the source. Name its
        sizes with `model.config.subnets = {...}`.

    Raises:
        UnsupportedSourceError: If the checkpoint is of another kind than those it lists, or has a setting that the
            supernet cannot express. Tells so before any weights are read.
        ValueError: If the task is unknown, or layers cannot attend so.
        TypeError: If the source is neither a name nor a model.

    Example:
        >>> model = convert("google-bert/bert-base-uncased", task="sequence-classification", num_labels=3)
        >>> model.config.subnets = {"small": SubnetConfig.scaled(model.config, width=0.5, depth=0.5)}
    """
    if task is not None and task not in TASKS:
        raise ValueError(f"Unknown task {task!r}: possible are {list(TASKS)}.")
    attention = {name: kwargs.pop(name) for name in ATTENTION_FIELDS if name in kwargs}
    if isinstance(source, (str, Path)):
        stock_model = _load(str(source), task, kwargs)
    elif isinstance(source, PreTrainedModel):
        stock_model = _with_head(source, task, kwargs)
    else:
        raise TypeError(
            f"source is a {type(source).__name__}: give a Hub id, a folder or a transformers model "
            "(merge adapters into it first)."
        )
    return _convert_model(stock_model, attention)


def _load(name: str, task: str | None, kwargs: dict[str, Any]) -> PreTrainedModel:
    """Loads a checkpoint in the class of the task, once its configuration is known to be convertible."""
    if kwargs.get("output_loading_info"):
        raise ValueError("output_loading_info=True has no place here: convert gives the model alone.")
    config = copy.deepcopy(kwargs.get("config"))
    if config is None:
        config = AutoConfig.from_pretrained(name, **{key: kwargs[key] for key in HUB_SETTINGS if key in kwargs})
    if task == "question-answering":  # whatever the checkpoint's own head has
        kwargs = {**START_AND_END, **kwargs}
    config.num_labels = kwargs.get("num_labels", config.num_labels)
    source = _find_source(config)
    if task is None and config.architectures:
        class_name = config.architectures[0]
    else:
        class_name = _class_for(source, task or "feature-extraction")
    source.elastic_config(config, _find_head(source, class_name))
    return load_with_head(getattr(transformers, class_name), name, **kwargs)


def _with_head(model: PreTrainedModel, task: str | None, kwargs: dict[str, Any]) -> PreTrainedModel:
    """Gives a loaded model in the class of the task, with a new head if it has another."""
    source = _find_source(model.config)
    class_name = type(model).__name__
    head = source.heads.get(class_name)
    fits = task is None or (head is not None and head.elastic_class == _elastic_class(task))
    # A pretraining class may be one for a task, too, but the settings of a new head ask for the usual one.
    if kwargs and (task is None or class_name == _class_for(source, task)):
        raise ValueError(
            f"{sorted(kwargs)} cannot be applied to a loaded {class_name}: they describe a head that is added with "
            "`task`, or how a checkpoint is loaded from its name."
        )
    if fits and not kwargs:
        return model
    if task == "feature-extraction":
        return model.base_model
    config = copy.deepcopy(model.config)
    if task == "question-answering":
        kwargs = {**START_AND_END, **kwargs}
    for key, value in kwargs.items():
        if not hasattr(config, key):
            raise ValueError(f"{type(config).__name__} has no field {key!r}, which was to be {value!r}.")
        setattr(config, key, value)
    source.elastic_config(config, source.heads[_class_for(source, task)])
    with_head = getattr(transformers, TASKS[task]).from_config(config, dtype=model.dtype).to(model.device)
    missing, _ = with_head.base_model.load_state_dict(model.base_model.state_dict(), strict=False)
    also_new = f", and so are {missing}" if missing else ""
    logger.warning(f"The head of {type(with_head).__name__} is new{also_new}: train it before the model is used.")
    return with_head.train(model.training)


def _elastic_class(task: str) -> str:
    return AUTO_MAP[TASKS[task]].partition(".")[2]


def _class_for(source: Source, task: str) -> str:
    return source.class_for(_elastic_class(task))


def _find_source(config: PreTrainedConfig) -> Source:
    if isinstance(config, ElasticConfig):
        raise UnsupportedSourceError("The checkpoint is elastic already: load it with AutoModelFor….from_pretrained.")
    source = find_source(config.model_type)
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedSourceError(
            "The checkpoint is quantized, and quantized weights cannot be cut: convert the unquantized one."
        )
    return source


def _find_head(source: Source, class_name: str) -> Head:
    if class_name not in source.heads:
        raise UnsupportedSourceError(
            f"{class_name} cannot be converted. Supported of {source.model_type} are {', '.join(source.heads)}; "
            "give `task` to convert the encoder with another head."
        )
    return source.heads[class_name]


def _public_name(name_or_path: str) -> str | None:
    """Gives a Hub id as it is, and of a folder its name alone."""
    path = Path(name_or_path)
    is_hub_id = not path.exists() and not path.is_absolute() and len(path.parts) <= 2
    return (name_or_path if is_hub_id else path.name) or None


def _convert_model(stock_model: PreTrainedModel, attention: dict[str, Any]) -> ElasticPreTrainedModel:
    stock_config = stock_model.config
    source = _find_source(stock_config)
    head = _find_head(source, type(stock_model).__name__)
    # transformers' own default gives way to that of the elastic model, which depends on the layers.
    implementation = stock_config._attn_implementation
    config = source.elastic_config(
        stock_config,
        head,
        add_pooling_layer=getattr(stock_model.base_model, "pooler", None) is not None,
        source_model_type=source.model_type,
        source_name_or_path=_public_name(stock_config.name_or_path),
        name_or_path=stock_config.name_or_path,
        attn_implementation=None if implementation == "sdpa" else implementation,
    )
    for name, value in attention.items():
        setattr(config, name, value)  # checked when the model is made
    model = getattr(modeling_elastic, head.elastic_class)(config).train(stock_model.training)
    for fields in source.merged_fields(stock_config):
        logger.warning(f"{fields} become one field, with the last of these values. Outputs are the same.")
    weights = stock_model.state_dict()
    dropped = [name for name in weights if name.startswith(head.dropped)]
    if dropped:
        logger.warning(
            f"{head.elastic_class} has no place for these weights of {type(stock_model).__name__}: {dropped}."
        )
    new = {
        name: weight.to(stock_model.device, stock_model.dtype)
        for name, weight in model.state_dict().items()
        if name.endswith(NEW_WEIGHTS)
    }
    load_copies(model, new | source.elastic_weights(weights, head))
    return model
