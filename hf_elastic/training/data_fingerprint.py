"""What identifies a dataset without giving any of it away."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

HASHED_ROWS = 4096


@dataclass(frozen=True)
class DataFingerprint:
    """Size, columns and hash of a dataset.

    Args:
        rows (`int`, *optional*): Number of rows; none for a stream.
        columns (`list[str]`): Names of the columns; empty for data without named columns.
        content_hash (`str`, *optional*): SHA-256 of the rows in their order, or of evenly spaced ones of them. It
            depends on nothing else: neither on caches nor on where the data came from. None for data that could give
            other rows, or have side effects, when they are read once more, and for rows of objects whose content is
            unknown: all of them would have the same hash.
        hashed_rows (`int`): How many rows it is of.
        fingerprint (`str`, *optional*): What the `datasets` library calls the data by, which depends on how they were
            made.

    Example:
        >>> DataFingerprint.of([{"labels": 1}, {"labels": 0}]).rows
        2
    """

    rows: int | None = None
    columns: list[str] = field(default_factory=list)
    content_hash: str | None = None
    hashed_rows: int = 0
    fingerprint: str | None = None

    @classmethod
    def of(cls, dataset: Any) -> "DataFingerprint":
        """Reads a dataset: a list of rows, one of the `datasets` library, or any other."""
        rows = len(dataset) if hasattr(dataset, "__len__") else None
        columns = list(getattr(dataset, "column_names", None) or [])
        if not columns and isinstance(dataset, list) and dataset and isinstance(dataset[0], Mapping):
            columns = sorted(map(str, dataset[0]))
        content_hash, hashed_rows = _hash(_sampled_rows(dataset))
        return cls(rows, columns, content_hash, hashed_rows, getattr(dataset, "_fingerprint", None))


def _hash(rows: Iterator[Any]) -> tuple[str | None, int]:
    """The hash of rows and their number; none if there are none, or one is of a kind that is not known."""
    digest, hashed = hashlib.sha256(), 0
    for row in rows:
        try:
            digest.update(json.dumps(row, sort_keys=True, default=_plain).encode() + b"\n")
        except (TypeError, ValueError):
            return None, 0
        hashed += 1
    return (digest.hexdigest(), hashed) if hashed else (None, 0)


def _sampled_rows(dataset: Any) -> Iterator[Any]:
    """Evenly spaced rows of a dataset that gives them without side effects."""
    if isinstance(dataset, list):
        yield from (dataset[i] for i in _indices(len(dataset)))
    elif hasattr(dataset, "with_format") and hasattr(dataset, "select"):
        yield from dataset.with_format(None).select(_indices(len(dataset)))


def _indices(rows: int) -> list[int]:
    number = min(rows, HASHED_ROWS)
    return [i * rows // number for i in range(number)]


def _plain(value: Any) -> Any:
    """What JSON has no form for: arrays as lists, bytes and times as text, what maps names to values as a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    for form in ("tolist", "isoformat", "hex"):
        if hasattr(value, form):
            return getattr(value, form)()
    raise TypeError(f"The content of a {type(value).__name__} is unknown.")
