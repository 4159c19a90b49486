"""One training run, a whole family of encoder sizes.

Importing the package registers model type `"elastic"` with transformers' Auto classes. Nothing else is loaded until it
is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .auto import watch_auto_classes

if TYPE_CHECKING:
    from .compression.convert import convert
    from .compression.experts import copy_into_experts, split_into_experts
    from .compression.extract import extract
    from .compression.rank import rank
    from .compression.share import share_layers
    from .compression.stock import to_stock
    from .hub.exporting import export_family
    from .hub.family import load_family
    from .modeling.configuration_elastic import ElasticConfig
    from .modeling.modeling_elastic import (
        ElasticForMaskedLM,
        ElasticForMultipleChoice,
        ElasticForQuestionAnswering,
        ElasticForSequenceClassification,
        ElasticForTokenClassification,
        ElasticModel,
    )
    from .modeling.subnet_elastic import SubnetConfig
    from .training.arguments import ElasticTrainingArguments
    from .training.collators import UnpaddingCollator
    from .training.learning_rate_finder import find_learning_rate
    from .training.preflight import check_training
    from .training.teacher_inputs import TeacherInputsCollator, encode_for_teacher
    from .training.teachers import Teacher
    from .training.trainer import ElasticTrainer

__version__ = "0.1.0"

_MODULES = {
    "convert": "compression.convert",
    "copy_into_experts": "compression.experts",
    "extract": "compression.extract",
    "rank": "compression.rank",
    "share_layers": "compression.share",
    "split_into_experts": "compression.experts",
    "to_stock": "compression.stock",
    "export_family": "hub.exporting",
    "load_family": "hub.family",
    "ElasticConfig": "modeling.configuration_elastic",
    "ElasticForMaskedLM": "modeling.modeling_elastic",
    "ElasticForMultipleChoice": "modeling.modeling_elastic",
    "ElasticForQuestionAnswering": "modeling.modeling_elastic",
    "ElasticForSequenceClassification": "modeling.modeling_elastic",
    "ElasticForTokenClassification": "modeling.modeling_elastic",
    "ElasticModel": "modeling.modeling_elastic",
    "SubnetConfig": "modeling.subnet_elastic",
    "ElasticTrainingArguments": "training.arguments",
    "ElasticTrainer": "training.trainer",
    "Teacher": "training.teachers",
    "check_training": "training.preflight",
    "TeacherInputsCollator": "training.teacher_inputs",
    "UnpaddingCollator": "training.collators",
    "encode_for_teacher": "training.teacher_inputs",
    "find_learning_rate": "training.learning_rate_finder",
}

__all__ = [
    "ElasticConfig",
    "ElasticForMaskedLM",
    "ElasticForMultipleChoice",
    "ElasticForQuestionAnswering",
    "ElasticForSequenceClassification",
    "ElasticForTokenClassification",
    "ElasticModel",
    "ElasticTrainer",
    "ElasticTrainingArguments",
    "SubnetConfig",
    "Teacher",
    "TeacherInputsCollator",
    "UnpaddingCollator",
    "check_training",
    "convert",
    "copy_into_experts",
    "encode_for_teacher",
    "export_family",
    "extract",
    "find_learning_rate",
    "load_family",
    "rank",
    "share_layers",
    "split_into_experts",
    "to_stock",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


watch_auto_classes()
