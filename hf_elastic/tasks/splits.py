"""Splitting rows in two parts, balanced and repeatable."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def stratified_split(strata: Sequence[Any], fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Splits row numbers in two parts with the same proportions of every stratum.

    Args:
        strata: What to balance, one entry per row: class names, or the same value for all.
        fraction: Size of the second part, in (0, 1).
        seed: Seed of the choice.

    Returns:
        Row numbers of the first and of the second part, in ascending order. A stratum of one row goes to the first.

    Raises:
        ValueError: If `fraction` is outside (0, 1).
    """
    if not 0 < fraction < 1:
        raise ValueError(f"A fraction of {fraction!r} cannot be split off: it must lie between 0 and 1.")
    rng = np.random.default_rng(seed)
    strata = np.asarray(strata)
    first, second = [], []
    for stratum in np.unique(strata):
        rows = rng.permutation(np.flatnonzero(strata == stratum))
        size = min(round(fraction * len(rows)), len(rows) - 1)
        second.extend(rows[:size].tolist())
        first.extend(rows[size:].tolist())
    return sorted(first), sorted(second)
