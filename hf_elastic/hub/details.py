"""What only the user knows about a family, for its cards and its manifest."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from huggingface_hub.utils import validate_repo_id

from ..training.provenance import RunRecord

DETAILS_NAME = "training_details.json"

Scalar = str | int | float | bool
_NO_TEXTS = ("settings", "other_splits", "run")


@dataclass(frozen=True)
class TrainingDetails:
    """What the cards say about purpose, data and training. Whatever is missing, the cards call unrecorded.

    Args:
        name (`str`, *optional*):
            Title of the family. The name of the folder that it is written to by default.
        description (`str`, *optional*):
            Intended use, in Markdown.
        dataset (`str`, *optional*):
            Name of the training data for readers, e.g. `"BBC News"`.
        dataset_id (`str`, *optional*):
            The same on the Hub, if it is there, e.g. `"SetFit/bbc-news"`.
        dataset_config (`str`, *optional*):
            Its configuration there, e.g. `"rte"` of `"nyu-mll/glue"`.
        dataset_split (`str`, *optional*):
            The part of it that the metrics were measured on, e.g. `"test"`.
        other_splits (`Mapping[str, Mapping[str, Mapping[str, float]]]`):
            The same metrics on further parts of it, by split, size and metric.
        training_data (`str`, *optional*):
            How many rows of what were trained on, and how they were chosen, in Markdown.
        settings (`Mapping[str, str | int | float | bool]`):
            Training settings for a table, e.g. `{"epochs": 3, "learning rate": 2e-5}`.
        language (`str` or `list[str]`, *optional*):
            ISO 639 code or codes, e.g. `"en"`.
        license (`str`, *optional*):
            The Hub's identifier of the license, e.g. `"apache-2.0"`.
        base_model (`str`, *optional*):
            Hub id of the checkpoint that the supernet was converted from. By default what the model remembers, if that
            is an id with an organization, e.g. `"google-bert/bert-base-uncased"`.
        limits (`str`, *optional*):
            Known limits besides those that the card derives itself, in Markdown.
        citation (`str`, *optional*):
            BibTeX entries.
        run ([`RunRecord`] or `Mapping`, *optional*):
            Seed, versions, data and arguments of the training, e.g. `RunRecord.load("out/checkpoint-500")`.

    Raises:
        TypeError: If a value has another type.
        ValueError: If a value is blank or not finite, `dataset_id` or `base_model` cannot be a Hub id, or `run` is no
            record.
    """

    name: str | None = None
    description: str | None = None
    dataset: str | None = None
    dataset_id: str | None = None
    dataset_config: str | None = None
    dataset_split: str | None = None
    other_splits: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    training_data: str | None = None
    settings: dict[str, Scalar] = field(default_factory=dict)
    language: str | list[str] | None = None
    license: str | None = None
    base_model: str | None = None
    limits: str | None = None
    citation: str | None = None
    run: RunRecord | None = None

    def __post_init__(self) -> None:
        if self.run is not None:
            object.__setattr__(self, "run", RunRecord.read(self.run))
        for name in (known.name for known in fields(self) if known.name not in _NO_TEXTS):
            value = getattr(self, name)
            parts = value if name == "language" and isinstance(value, list) else [value]
            if not all(part is None or isinstance(part, str) for part in parts):
                raise TypeError(f"{name}={value!r}: expected text, got {type(value).__name__}.")
            if not all(part is None or part.strip() for part in parts):
                raise ValueError(
                    f"{name}={value!r} is blank: leave it out, and the card says that it is not recorded."
                )
        for name in ("dataset_id", "base_model"):
            value = getattr(self, name)
            if value is not None and not is_hub_id(value):
                raise ValueError(
                    f"{name}={value!r} is not a Hub id, e.g. 'org/name': leave it out if it is not on the Hub."
                )
        if not isinstance(self.settings, Mapping):
            raise TypeError(f"settings={self.settings!r}: expected a mapping of names to values.")
        for name, value in self.settings.items():
            if not isinstance(name, str) or not isinstance(value, Scalar):
                raise TypeError(f"settings[{name!r}]={value!r}: expected text, a number or a boolean.")
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"settings[{name!r}]={value!r} is not finite: leave it out, or write it as text.")
        object.__setattr__(self, "settings", dict(self.settings))  # frozen, and JSON knows no other mappings
        object.__setattr__(self, "other_splits", _checked_splits(self.other_splits))

    @classmethod
    def read(cls, values: TrainingDetails | Mapping[str, Any] | None) -> TrainingDetails:
        """Accepts what callers give: the details themselves, a mapping of their fields, or nothing.

        Raises:
            TypeError: If it is none of these.
            ValueError: If the mapping has an unknown key.
        """
        if isinstance(values, cls):
            return values
        if values is not None and not isinstance(values, Mapping):
            raise TypeError(f"details={values!r}: give TrainingDetails or a mapping of their fields.")
        values = dict(values or {})
        known = [known.name for known in fields(cls)]
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ValueError(f"Unknown training detail {unknown[0]!r}: possible are {known}.")
        return cls(**values)

    def save(self, folder: str | Path) -> None:
        """Writes the details beside a supernet, for a later export.

        Args:
            folder (`str` or `Path`):
                The supernet's folder.
        """
        values = {name: value for name, value in asdict(self).items() if value}
        (Path(folder) / DETAILS_NAME).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> TrainingDetails | None:
        """Reads what [`~TrainingDetails.save`] wrote beside a supernet, if there is such a file.

        Raises:
            ValueError: If the file holds something else.
        """
        file = Path(folder) / DETAILS_NAME
        if not file.is_file():
            return None
        try:
            return cls.read(json.loads(file.read_text(encoding="utf-8")))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{file} holds no training details: {error} Remove it, or train again.") from None


def _checked_splits(other_splits: Any) -> dict[str, dict[str, dict[str, float]]]:
    """The metrics of further splits as plain dictionaries of floats."""
    try:
        splits = {
            split: {size: {metric: float(value) for metric, value in of.items()} for size, of in by_size.items()}
            for split, by_size in other_splits.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise TypeError(f"other_splits={other_splits!r}: expected numbers by split, size and metric.") from None
    for split, by_size in splits.items():
        for size, metrics in by_size.items():
            for metric, value in metrics.items():
                if not math.isfinite(value):
                    raise ValueError(f"other_splits[{split!r}][{size!r}][{metric!r}]={value!r} is not finite.")
    return splits


def is_hub_id(name: str) -> bool:
    """Says whether a name has the form of a Hub id, e.g. `"org/model"`."""
    try:
        validate_repo_id(name)
    except ValueError:
        return False
    return True
