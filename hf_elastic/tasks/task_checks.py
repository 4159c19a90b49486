"""Whether a checkpoint suits a task: its head, its labels, and how long its inputs may be."""

from pathlib import Path

from ..checkpoints import class_with_head, read_config
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from .label_order import check_label_order
from .preprocessing import Preprocessing, saved_preprocessing
from .task import Task

# Heads with a classifier, whose weights another head would not fit.
_CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification", "ForMultipleChoice")


def check_head(task: Task, source: str | Path, preprocessing: Preprocessing) -> None:
    """Checks that a checkpoint's head, if it has one of the task's kind, was made for the task.

    Args:
        task: The task.
        source: Folder or Hub id of the checkpoint.
        preprocessing: How its inputs are made now.

    Raises:
        ValueError: If it is for other labels, or for the same in another order, or was trained with other inputs.
    """
    config = read_config(source)
    kind = class_with_head(task.input_format.head).__name__.removeprefix("Elastic")
    if not any(name.endswith(kind) for name in config.architectures or []):
        if other := [name for name in config.architectures or [] if name.endswith(_CLASSIFIERS)]:
            raise ValueError(
                f"{source} is a {other[0]}, and {task.name} needs {kind}. To keep the encoder and train a new head, "
                "give it as init_from (--init-from)."
            )
        return
    check_label_order(task, config)
    names = [config.id2label[i] for i in sorted(config.id2label)]
    are_names = task.label_names and any(name != f"LABEL_{i}" for i, name in enumerate(names))
    plain = [name.lower() for name in names]
    if task.input_format.head == "sequence-classification" and (
        config.num_labels != task.labels.num_labels
        or (are_names and plain != [name.lower() for name in task.label_names])
    ):
        raise ValueError(
            f"{source} has a head for the labels {', '.join(names)}, and {task.name} has "
            f"{', '.join(task.label_names) or 'a number'}. To keep the encoder and train a new head, give it as "
            "init_from (--init-from)."
        )
    saved = saved_preprocessing(source, config)
    if saved is not None:
        saved.check(preprocessing)


def check_length(model: ElasticPreTrainedModel, max_length: int) -> None:
    """Raises a ValueError if a model has not as many positions."""
    longest = model.base_model.embeddings.available_positions
    if max_length > longest:
        raise ValueError(f"max_length={max_length}: the model takes up to {longest} tokens.")
