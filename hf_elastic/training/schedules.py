"""How a number, such as the weight of a loss or a temperature, moves from its start to its end over the training."""

import math
from collections.abc import Callable

# The share of the way from start to end, for a progress in [0, 1].
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 0.0,
    "linear": lambda progress: progress,
    "cosine": lambda progress: (1 - math.cos(math.pi * progress)) / 2,
}


def value_at(schedule: str, start: float, end: float | None, progress: float) -> float:
    """Gives the number at a point of the training.

    Args:
        schedule: `"constant"` (stays at start), `"linear"` or `"cosine"` (slow at both ends).
        start: Value at progress 0.
        end: Value at progress 1. None means that it stays at start.
        progress: Share of the training that is done, in [0, 1].

    Returns:
        The value.

    Raises:
        ValueError: For an unknown schedule, or a progress outside of [0, 1].

    Example:
        >>> value_at("linear", 1.0, 0.5, progress=0.5)
        0.75
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"Unknown schedule {schedule!r}. Choose one of {', '.join(SCHEDULES)}.")
    if not 0 <= progress <= 1:
        raise ValueError(f"progress={progress} is outside of [0, 1]. Give the share of the training that is done.")
    return start if end is None else start + (end - start) * SCHEDULES[schedule](progress)
