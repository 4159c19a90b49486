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
    from .compression.search import search
    from .compression.search_settings import SearchSettings
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
    from .training.dataset_metric import DatasetMetric
    from .training.distillation_proxy import DistillationProxy
    from .training.learning_rate_finder import find_learning_rate
    from .training.preflight import check_training
    from .training.pruning import prune
    from .training.teacher_inputs import TeacherInputsCollator, encode_for_teacher
    from .training.teachers import Teacher
    from .training.trainer import ElasticTrainer

__version__ = "0.1.0"

_MODULES = {
    "convert": "compression.convert",
    "copy_into_experts": "compression.experts",
    "extract": "compression.extract",
    "rank": "compression.rank",
    "search": "compression.search",
    "SearchSettings": "compression.search_settings",
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
    "DatasetMetric": "training.dataset_metric",
    "DistillationProxy": "training.distillation_proxy",
    "Teacher": "training.teachers",
    "check_training": "training.preflight",
    "TeacherInputsCollator": "training.teacher_inputs",
    "UnpaddingCollator": "training.collators",
    "encode_for_teacher": "training.teacher_inputs",
    "find_learning_rate": "training.learning_rate_finder",
    "prune": "training.pruning",
}

__all__ = [
    "DatasetMetric",
    "DistillationProxy",
    "ElasticConfig",
    "ElasticForMaskedLM",
    "ElasticForMultipleChoice",
    "ElasticForQuestionAnswering",
    "ElasticForSequenceClassification",
    "ElasticForTokenClassification",
    "ElasticModel",
    "ElasticTrainer",
    "ElasticTrainingArguments",
    "SearchSettings",
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
    "prune",
    "rank",
    "search",
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
