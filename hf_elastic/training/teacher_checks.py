"""Checks of teachers before the training: what a student can learn from, and what would silently teach it nonsense."""

import inspect
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.trainer_utils import unwrap_peft_model

from ..modeling.modeling_elastic import (
    ElasticForSequenceClassification,
    ElasticForTokenClassification,
    ElasticPreTrainedModel,
)
from .arguments import ElasticTrainingArguments
from .distillation_arguments import FEATURES
from .layer_maps import check_layer_map
from .teacher_cache import count_examples
from .teacher_vocabulary import different_special_token, different_token
from .teachers import EXAMPLE_ID, TARGETS, Teacher, input_prefixes

_OTHER_TOKENIZER = (
    'Give a teacher with the same tokenizer, or its own encoding of the texts: Teacher(model, inputs="...") with '
    "encode_for_teacher."
)


def list_teachers(teachers: Iterable[nn.Module | Teacher] | None) -> list[Teacher]:
    """Gives models and teachers as teachers, each with a name.

    Raises:
        TypeError: If they are no sequence, such as a single model.
    """
    if isinstance(teachers, Teacher) or (teachers is not None and not isinstance(teachers, Iterable)):
        raise TypeError(f"teachers is a {type(teachers).__name__}. Give a list of models: teachers=[teacher].")
    given = [teacher if isinstance(teacher, Teacher) else Teacher(teacher) for teacher in teachers or []]
    return [replace(teacher, name=teacher.name or f"teacher_{i}") for i, teacher in enumerate(given)]


def check_teachers(
    teachers: list[Teacher], model: nn.Module, args: ElasticTrainingArguments, tokenizer: Any = None
) -> None:
    """Checks each teacher against the student, and all of them together.

    Args:
        teachers: The teachers, perhaps with adapters.
        model: The student, likewise.
        args: Which features are compared, and whether predictions are cached.
        tokenizer: The student's, if it is known.

    Raises:
        TypeError: If a teacher is no model, or has another head.
        ValueError: If it is the student or given twice, its inputs, hidden states or classes are others, or the
            weights are all 0.
    """
    if not teachers:
        return
    student, features = unwrap_peft_model(model), _compared_features(args)
    for i, teacher in enumerate(teachers):
        _check_teacher(f"teachers[{i}]", teacher, student, args, tokenizer)
    _check_distinct(teachers)
    if not any(teacher.weight for teacher in teachers):
        raise ValueError("The weights of all teachers are 0. Give one a positive weight, or leave the teachers out.")
    _check_prefixes(teachers, student)
    if features and not args.inplace_distillation and all(teacher.inputs is not None for teacher in teachers):
        raise ValueError(
            f"{features[0]}={getattr(args, features[0])} compares features of the same tokens, but all teachers have "
            f"inputs of their own. Set {features[0]}=0 or inplace_distillation=True, or add a teacher with the same "
            "tokenizer."
        )


def check_teacher_data(
    teachers: list[Teacher], args: ElasticTrainingArguments, train_dataset: Any, eval_dataset: Any
) -> None:
    """Checks that the data have what the teachers read.

    Raises:
        ValueError: If a column of a teacher with inputs of its own is missing, or the ids of the examples that
            predictions are cached by, or teachers are to be weighed by evaluation data that there are none of.
    """
    check_teacher_columns(teachers, train_dataset)
    if args.teacher_cache_dir is not None and teachers and train_dataset is not None:
        count_examples(train_dataset)
    if args.teacher_mixing != "validation" or not teachers:
        return
    if eval_dataset is None or isinstance(eval_dataset, Mapping):
        found = "none" if eval_dataset is None else f"several ({', '.join(map(repr, eval_dataset))})"
        raise ValueError(
            f'teacher_mixing="validation" weighs teachers by the evaluation data, and there are {found}. Give one '
            'eval_dataset, or teacher_mixing="weights".'
        )
    check_teacher_columns(teachers, eval_dataset, "eval_dataset")


def check_teacher_columns(teachers: list[Teacher], dataset: Any, name: str = "train_dataset") -> None:
    """Raises ValueError if a dataset that names its columns has none for a teacher with inputs of its own."""
    if isinstance(dataset, list):
        columns = list(dataset[0]) if dataset and isinstance(dataset[0], Mapping) else None
    else:
        columns = getattr(dataset, "column_names", None)
    for prefix in input_prefixes(teachers) if columns is not None else ():
        if f"{prefix}input_ids" not in columns:
            raise ValueError(
                f"{name} has no column {prefix}input_ids for the teacher with inputs={prefix!r}: its columns are "
                f"{', '.join(columns)}. Add them with encode_for_teacher."
            )


def check_teacher_cache(teachers: list[Teacher], model: nn.Module, args: ElasticTrainingArguments) -> None:
    """Raises ValueError if predictions are to be cached, but an example needs more than one."""
    if args.teacher_cache_dir is None:
        return
    student = unwrap_peft_model(model)
    if not isinstance(student, ElasticForSequenceClassification):
        raise ValueError(
            f"teacher_cache_dir={args.teacher_cache_dir!r} keeps one prediction per example, and a "
            f"{type(student).__name__} has more. Leave it out."
        )
    features = _compared_features(args)
    if features and any(teacher.inputs is None for teacher in teachers):
        raise ValueError(
            f"teacher_cache_dir={args.teacher_cache_dir!r} keeps predictions alone, but {features[0]}="
            f"{getattr(args, features[0])} needs more of the teachers. Set {features[0]}=0, or leave the cache out."
        )


def _compared_features(args: ElasticTrainingArguments) -> list[str]:
    return [f"{kind}_weight" for kind in FEATURES if getattr(args, f"{kind}_weight")]


def _check_teacher(
    name: str, given: Teacher, student: ElasticPreTrainedModel, args: ElasticTrainingArguments, tokenizer: Any
) -> None:
    if not hasattr(given.model, "config"):
        raise TypeError(
            f"{name} is a {type(given.model).__name__}. Give loaded models, e.g. "
            "AutoModelForSequenceClassification.from_pretrained(...)."
        )
    teacher = unwrap_peft_model(given.model)
    if teacher is student:
        raise ValueError(
            f"{name} is the model that is trained, while a teacher is frozen. Give a copy, or use "
            "inplace_distillation."
        )
    _check_head(name, teacher, student)
    if given.inputs is None:
        _check_inputs(name, teacher, student.config, tokenizer)
        _check_features(name, teacher.config, student.config, args)
    elif not isinstance(student, ElasticForSequenceClassification):
        raise ValueError(
            f"{name} has inputs={given.inputs!r} of its own, whose tokens are not those of the model, a "
            f"{type(student).__name__}. Only sequence classification can learn from it. {_OTHER_TOKENIZER}"
        )
    if isinstance(student, (ElasticForSequenceClassification, ElasticForTokenClassification)):
        _check_classes(name, teacher.config, student.config)


def _check_distinct(teachers: list[Teacher]) -> None:
    models = [unwrap_peft_model(teacher.model) for teacher in teachers]
    for i, model in enumerate(models):
        first = next(j for j, other in enumerate(models) if other is model)
        if first < i:
            raise ValueError(
                f"teachers[{i}] is the same model as teachers[{first}]. Give it once, with a larger weight: "
                "Teacher(model, weight=2.0)."
            )
    name, number = Counter(teacher.name for teacher in teachers).most_common(1)[0]
    if number > 1:
        raise ValueError(f"{number} teachers have the name {name!r}. Give each a name of its own.")


def _check_prefixes(teachers: list[Teacher], student: ElasticPreTrainedModel) -> None:
    """Checks that each column belongs to one reader, whom its name tells."""
    prefixes = input_prefixes(teachers)
    for prefix in prefixes:
        others = [other for other in prefixes if other != prefix]
        others += [*inspect.signature(student.forward).parameters, *TARGETS, EXAMPLE_ID]
        taken = [name for name in others if name.startswith(prefix)]
        if taken:
            raise ValueError(
                f"inputs={prefix!r} of a teacher also starts {taken[0]!r}, which is read by another. Choose a prefix "
                "of its own, e.g. 'electra_'."
            )


def _check_head(name: str, teacher: nn.Module, student: ElasticPreTrainedModel) -> None:
    """Compares what follows `For` in the names of the classes, where both have it."""
    ours, theirs = type(student).__name__.partition("For")[2], type(teacher).__name__
    has_head = not isinstance(teacher, PreTrainedModel) or teacher.base_model is not teacher
    # Contained, because a class of one's own may be called BertForMultiLabelSequenceClassification.
    if not has_head or ("For" in theirs and ours not in theirs):
        raise TypeError(
            f"{name} is a {theirs}, which has not the head of the model, a {type(student).__name__}. Load the teacher "
            f"as AutoModelFor{ours}, from a checkpoint that was trained for this task."
        )


def _check_inputs(name: str, teacher: nn.Module, ours: Any, tokenizer: Any) -> None:
    """Checks that a teacher can read what the student reads, as far as that is known without its tokenizer."""
    theirs = teacher.config
    setting = different_special_token(theirs, ours)
    if getattr(theirs, "vocab_size", None) not in (None, ours.vocab_size):
        setting = "vocab_size"
    if setting is not None:
        raise ValueError(
            f"{name} has {setting}={getattr(theirs, setting)}, the model {getattr(ours, setting)}. {_OTHER_TOKENIZER}"
        )
    source = getattr(teacher, "name_or_path", "")
    token = different_token(source, tokenizer.get_vocab()) if hasattr(tokenizer, "get_vocab") else None
    if token is not None:
        raise ValueError(
            f"{name} is of {source}, whose tokenizer gives {token!r} another id than processing_class does. "
            f"{_OTHER_TOKENIZER}"
        )
    positions = getattr(theirs, "max_position_embeddings", None) or 0  # not positive where positions are relative
    if 0 < positions < ours.max_position_embeddings:
        raise ValueError(
            f"{name} has max_position_embeddings={positions}, the model {ours.max_position_embeddings}, so that it "
            "cannot read all that the model reads. Give a teacher with at least as many positions."
        )


def _check_features(name: str, theirs: Any, ours: Any, args: ElasticTrainingArguments) -> None:
    features = _compared_features(args)
    layers = getattr(theirs, "num_hidden_layers", None)
    if features and layers is not None:
        check_layer_map(args.layer_map, ours.num_hidden_layers, layers)
    # Where the hidden sizes differ, a projection learns what corresponds to what.
    of_units = [feature for feature in ("hidden_weight", "embedding_weight") if feature in features]
    if of_units and getattr(theirs, "hidden_size", ours.hidden_size) == ours.hidden_size:
        _check_order(name, theirs, ours, of_units[0])
    heads = getattr(theirs, "num_attention_heads", None)
    if "relation_weight" in features and args.relation_heads is not None and heads is not None:
        width = heads * (getattr(theirs, "head_dim", None) or theirs.hidden_size // heads)
        if width % args.relation_heads:
            raise ValueError(
                f"relation_heads={args.relation_heads} does not divide the width of the heads of {name}, which is "
                f"{width}. Leave it out, or give a divisor of all."
            )


def _check_order(name: str, theirs: Any, ours: Any, feature: str) -> None:
    ranked = [getattr(config, "hidden_units_ranked", False) for config in (theirs, ours)]
    if ranked[0] != ranked[1]:
        raise ValueError(
            f"The hidden units of {name} are in another order than those of the model (rank reordered one of them), "
            f"so that their hidden states cannot be compared. Set {feature}=0, or use as teacher a copy of the "
            "model that was made after ranking."
        )


def _check_classes(name: str, theirs: Any, ours: Any) -> None:
    found = getattr(theirs, "num_labels", None)
    if found not in (None, ours.num_labels):
        raise ValueError(
            f"{name} has num_labels={found}, the model {ours.num_labels}. Give a teacher of the same task."
        )
    kinds = [getattr(config, "problem_type", None) for config in (theirs, ours)]
    if None not in kinds and kinds[0] != kinds[1]:
        raise ValueError(
            f"{name} has problem_type={kinds[0]!r}, the model {kinds[1]!r}, whose outputs mean something else. Give a "
            "teacher of the same task."
        )
    order, other_order = _class_names(ours), _class_names(theirs)
    if order != other_order and sorted(order) == sorted(other_order):
        raise ValueError(
            f"{name} has the classes in the order {other_order}, the model in the order {order} (config.id2label). "
            "Give a teacher with the same order, or convert and encode the labels in the teacher's."
        )


def _class_names(config: Any) -> list[str]:
    """Names of the classes in their order, in lower case. Default names (`LABEL_0`, ...) are always in order."""
    names: dict[int, str] = getattr(config, "id2label", None) or {}
    return [str(names[i]).lower() for i in sorted(names)]
