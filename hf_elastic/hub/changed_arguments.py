"""Which training arguments differ from their defaults: the few that a reader of a card looks for."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from transformers.trainer_pt_utils import AcceleratorConfig

from ..training.arguments import ElasticTrainingArguments

# What a training sets by the machine that it runs on.
_OF_THE_MACHINE = {"dataloader_pin_memory"}


def changed_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Gives those arguments of a training that are not the defaults.

    Args:
        arguments (`Mapping[str, Any]`):
            Arguments by name, as a [`RunRecord`] has them. One that has no default any more counts as changed.

    Example:
        >>> changed_arguments({"seed": 42, "learning_rate": 2e-5})
        {'learning_rate': 2e-05}
    """
    defaults = {
        known.name: known.default if known.default_factory is MISSING else known.default_factory()
        for known in fields(ElasticTrainingArguments)
    }
    defaults["accelerator_config"] = AcceleratorConfig().to_dict()  # what becomes of None
    return {
        name: value
        for name, value in arguments.items()
        if name not in _OF_THE_MACHINE and not _is_same(value, defaults.get(name))
    }


def _is_same(value: Any, default: Any) -> bool:
    # A training fills in None and "none" with the empty value of their kind.
    is_nothing = [each is None or each is False or each in ("", "none", [], {}) for each in (value, default)]
    if isinstance(value, dict) and isinstance(default, dict):
        return value.items() <= default.items()
    return all(is_nothing) or value == getattr(default, "value", default)
