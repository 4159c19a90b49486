"""Opening a checkpoint for what comes next: an elastic one as it is, another one by converting it. And saving it."""

import copy
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from .compression.convert import TASKS, convert
from .modeling import modeling_elastic
from .modeling.configuration_elastic import ElasticConfig
from .modeling.modeling_elastic import ElasticPreTrainedModel
from .modeling.subnet_elastic import SubnetConfig
from .tasks.labels import REGRESSION

logger = logging.get_logger(__name__)


def read_config(name_or_path: str | Path) -> PreTrainedConfig:
    """Reads the configuration of a checkpoint.

    Args:
        name_or_path (`str` or `Path`):
            Its folder or Hub id.

    Raises:
        OSError: If there is no such checkpoint, or the Hub cannot be reached.
        ValueError: If the folder holds none.
    """
    try:
        return AutoConfig.from_pretrained(str(name_or_path))
    except OSError as error:
        if Path(name_or_path).is_dir():
            raise
        raise OSError(f"{name_or_path} is no folder here, and as a Hub id it cannot be read: {error}") from error


def load_elastic(name_or_path: str | Path) -> ElasticPreTrainedModel:
    """Loads a supernet or a member in the class it was saved from.

    Args:
        name_or_path (`str` or `Path`):
            Its folder, or its Hub id.

    Returns:
        `ElasticPreTrainedModel`: In evaluation mode.

    Raises:
        ValueError: If the checkpoint is not elastic.
    """
    config = read_config(name_or_path)
    if not isinstance(config, ElasticConfig):
        raise ValueError(
            f"{name_or_path} is a checkpoint of type {config.model_type!r}, not an elastic one: convert it first "
            "(`hf-elastic convert`, or hf_elastic.convert)."
        )
    architecture = (config.architectures or ["ElasticModel"])[0]
    return getattr(modeling_elastic, architecture).from_pretrained(str(name_or_path))


def load_supernet(
    name_or_path: str | Path, head: str = "sequence-classification", **settings: Any
) -> ElasticPreTrainedModel:
    """Loads a supernet with a task head; a checkpoint of another type is converted to one.

    Args:
        name_or_path (`str` or `Path`):
            Folder or Hub id of a supernet, or of a checkpoint that [`convert`] takes.
        head (`str`, defaults to `"sequence-classification"`):
            One of the tasks of [`convert`].
        **settings:
            Settings of the head, e.g. `num_labels`, `id2label`, `label2id`, `problem_type`.

    Returns:
        `ElasticPreTrainedModel`: With a new head if the checkpoint has none.

    Raises:
        UnsupportedSourceError: If the checkpoint can be neither loaded nor converted.
    """
    config = read_config(name_or_path)
    if isinstance(config, ElasticConfig):
        return class_with_head(head).from_pretrained(str(name_or_path), **settings)
    return convert(name_or_path, task=head, **settings)


def load_supernet_with_new_head(
    name_or_path: str | Path, head: str = "sequence-classification", **settings: Any
) -> ElasticPreTrainedModel:
    """Loads a supernet, or a checkpoint that is converted to one, and gives it a new task head.

    Args:
        name_or_path (`str` or `Path`):
            Folder or Hub id of the checkpoint. The encoder and a pooler are taken over, its head is not.
        head (`str`, defaults to `"sequence-classification"`):
            One of the tasks of [`convert`].
        **settings:
            Settings of the head, e.g. `num_labels`, `id2label`, `label2id`, `problem_type`.

    Returns:
        `ElasticPreTrainedModel`: With the sizes that a supernet names.
    """
    encoder = load_supernet(name_or_path, "feature-extraction")
    config = copy.deepcopy(encoder.config)
    for name, value in settings.items():
        setattr(config, name, value)
    model = class_with_head(head)(config)
    missing, unexpected = model.base_model.load_state_dict(encoder.state_dict(), strict=False)
    if unexpected or any(not name.startswith("pooler.") for name in missing):
        raise ValueError(f"{name_or_path} does not fit a head for {head}: {unexpected or missing}.")
    return model


def class_with_head(head: str) -> type[ElasticPreTrainedModel]:
    """Gives the elastic class for a task of [`convert`].

    Raises:
        ValueError: If there is none; lists those that there are.
    """
    if head not in TASKS:
        raise ValueError(f"head={head!r} is none of {', '.join(TASKS)}.")
    classes = [getattr(modeling_elastic, name) for name in modeling_elastic.__all__]
    return next(found for found in classes if found._auto_class == TASKS[head])


def named_subnets(name_or_path: str | Path) -> dict[str, SubnetConfig]:
    """Gives the sizes that a checkpoint names; none if it is not elastic.

    Args:
        name_or_path (`str` or `Path`):
            Its folder or Hub id.
    """
    config = read_config(name_or_path)
    return config.subnets if isinstance(config, ElasticConfig) else {}


def expected_labels(name_or_path: str | Path) -> dict[str, Any]:
    """Says which labels a checkpoint's head was made for, as keyword arguments of [`tasks.text_classification.read`].

    Args:
        name_or_path (`str` or `Path`):
            Folder or Hub id of a checkpoint.

    Returns:
        `problem_type` of a regression, `label_names` where the labels have names of their own, else `num_labels`;
        nothing if the checkpoint has no classification head.
    """
    config = read_config(name_or_path)
    if not any(name.endswith("ForSequenceClassification") for name in config.architectures or []):
        return {}
    if config.problem_type == REGRESSION or config.num_labels == 1:
        return {"problem_type": REGRESSION}
    names = [config.id2label[i] for i in range(config.num_labels)]
    unnamed = all(name == f"LABEL_{i}" for i, name in enumerate(names))
    return {"num_labels": len(names)} if unnamed else {"label_names": names}


def load_tokenizer(name_or_path: str | Path) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of a checkpoint.

    Args:
        name_or_path (`str` or `Path`):
            Its folder or Hub id.

    Raises:
        ValueError: If it has none. transformers itself would give one that knows no words.
    """
    tokenizer = AutoTokenizer.from_pretrained(str(name_or_path))
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ValueError(f"{name_or_path} has no tokenizer: save the one of the checkpoint it came from there.")
    return tokenizer


def save_with_tokenizer(model: PreTrainedModel, source: str | Path, output_dir: str | Path) -> None:
    """Saves a model together with the tokenizer of the checkpoint that it came from, if that has one.

    Args:
        model (`PreTrainedModel`):
            What to save.
        source (`str` or `Path`):
            Folder or Hub id of the checkpoint.
        output_dir (`str` or `Path`):
            The folder to write.
    """
    model.save_pretrained(output_dir)
    try:
        load_tokenizer(source).save_pretrained(output_dir)
    except (OSError, ValueError) as error:
        logger.warning(f"Saved without a tokenizer: {error}")
