"""Cross-validation: every training row is scored once, by a model that has not seen it."""

from dataclasses import replace

from .task_data import TaskData, row_groups, row_strata


def fold(data: TaskData, number: int, folds: int, seed: int = 42) -> TaskData:
    """Gives the data of one fold: its part of the training rows is what is scored, the others are trained on.

    Parts have the labels in the same proportions, and rows that belong together, such as the questions about one
    passage, are in one part.

    Args:
        data: The task's data.
        number: Number of the fold, from 0.
        folds: How many there are.
        seed: Seed of the parts.

    Raises:
        ImportError: If the extra `data` is not installed.
        ValueError: If there are fewer than two folds or no such one, or fewer rows than folds.
    """
    task, rows = data.task, data.train
    if folds < 2 or not 0 <= number < folds:
        raise ValueError(f"Fold {number} of {folds}: there have to be at least two, counted from 0.")
    groups = row_groups(task, rows)
    units = len(rows) if groups is None else len(set(groups))
    if units < folds:
        what = "rows" if groups is None else "passages"
        raise ValueError(f"{folds} folds of {task.name} need at least as many {what}: there are {units}.")
    try:
        from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold
    except ImportError as error:
        raise ImportError('Cross-validation needs scikit-learn: pip install "hf_elastic[data]"') from error
    is_balanced = bool(task.label_names) and task.label_column == "label"
    if groups is not None:
        splitter = (StratifiedGroupKFold if is_balanced else GroupKFold)(folds, shuffle=True, random_state=seed)
    else:
        splitter = (StratifiedKFold if is_balanced else KFold)(folds, shuffle=True, random_state=seed)
    parts = list(splitter.split(range(len(rows)), row_strata(task, rows) if is_balanced else None, groups))
    train, scored = parts[number]
    splits = {task.train_split: rows.select(train), task.validation_splits[0]: rows.select(scored)}
    return replace(data, splits=splits)
