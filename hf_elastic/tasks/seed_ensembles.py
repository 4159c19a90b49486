"""What the seeds of a run score together: an ensemble for each task and size, which stands beside their mean."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from transformers.utils import logging

from .ensemble import Member, join, rows_hash
from .task_result import SizeCost, TaskResult

logger = logging.get_logger(__name__)


def seed_ensembles(results: Sequence[TaskResult], run: str | Path) -> list[TaskResult]:
    """Averages what the seeds of each task predict.

    Args:
        results: What [`run_benchmark`] gave.
        run: The folder that it wrote.

    Returns:
        One result for each task with several seeds, with the scores of the ensembles and what all seeds cost together.
        There is none where the seeds were scored on different rows, as when these are held out from the training rows,
        or predictions are not there any more, or cannot be read.
    """
    by_task: dict[str, list[TaskResult]] = {}
    for result in results:
        if result.scores and result.fold is None:
            by_task.setdefault(result.task, []).append(result)
    joined = [_joined(of_task, Path(run)) for of_task in by_task.values() if len(of_task) > 1]
    return [result for result in joined if result is not None]


def _joined(results: Sequence[TaskResult], run: Path) -> TaskResult | None:
    first = results[0]
    by_size = {size: [Member(run, result, size) for result in results] for size in first.costs}
    members = [member for of_size in by_size.values() for member in of_size]
    for split in first.scores:
        same_rows = len({rows_hash(member, split) for member in members}) == 1
        if not same_rows or not all(member.file(split).is_file() for member in members):
            return None
    try:
        scores = {size: join(of_size, first.scores).scores for size, of_size in by_size.items()}
    except ValueError as error:  # of a file that another version wrote, or that is damaged
        logger.warning(f"There is no ensemble of the seeds of {first.task}: {error}")
        return None
    return replace(
        first,
        scores={split: {size: scores[size][split] for size in scores} for split in first.scores},
        costs={size: _sum([result.costs[size] for result in results]) for size in first.costs},
        robustness={},
    )


def _sum(costs: Sequence[SizeCost]) -> SizeCost:
    return SizeCost(
        sum(cost.parameters for cost in costs),
        sum(cost.encoder_parameters for cost in costs),
        sum(cost.flops for cost in costs),
        sum(cost.milliseconds for cost in costs),
    )
