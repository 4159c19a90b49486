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
    _check_fraction(fraction)
    rng = np.random.default_rng(seed)
    strata = np.asarray(strata)
    rows = [rng.permutation(np.flatnonzero(strata == stratum)) for stratum in np.unique(strata)]
    first, second = [], []
    for members, size in zip(rows, _shares([len(members) for members in rows], fraction), strict=True):
        second.extend(members[:size].tolist())
        first.extend(members[size:].tolist())
    return sorted(first), sorted(second)


def grouped_split(groups: Sequence[Any], fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Splits row numbers in two parts that have no group in common.

    Args:
        groups: What has to stay together, one entry per row.
        fraction: Size of the second part, in (0, 1); it may have more rows, but never all.
        seed: Seed of the choice.

    Returns:
        Row numbers of the first and of the second part, in ascending order. A single group goes to the first.

    Raises:
        ValueError: If `fraction` is outside (0, 1).
    """
    _check_fraction(fraction)
    members: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    order = np.random.default_rng(seed).permutation(len(members))
    shuffled = [list(members.values())[i] for i in order]
    second: list[int] = []
    for rows in shuffled[1:]:
        if len(second) >= fraction * len(groups):
            break
        second.extend(rows)
    chosen = set(second)
    return [row for row in range(len(groups)) if row not in chosen], sorted(second)


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise ValueError(f"A fraction of {fraction!r} cannot be split off: it must lie between 0 and 1.")


def _shares(counts: list[int], fraction: float) -> list[int]:
    """How many of each stratum make up the fraction, by the largest remainders; at least one is left of each."""
    exact = [fraction * count for count in counts]
    shares = [min(int(share), count - 1) for share, count in zip(exact, counts, strict=True)]
    wanted = round(fraction * sum(counts)) - sum(shares)
    by_remainder = sorted(range(len(counts)), key=lambda i: shares[i] - exact[i])
    for i in [i for i in by_remainder if shares[i] < counts[i] - 1][:wanted]:
        shares[i] += 1
    return shares
