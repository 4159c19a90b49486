"""What remains of a training on a task: scores, costs and times in one file, predictions beside it."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .atomic_files import replaced_file

RESULT_NAME = "result.json"
VERSION = 1

Scores = dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True)
class SizeCost:
    """What a size costs.

    Args:
        parameters: All of them.
        encoder_parameters: Those of the encoder layers.
        flops: Floating point operations of a forward pass over one sequence.
        milliseconds: Its latency on the machine that trained.
    """

    parameters: int
    encoder_parameters: int
    flops: int
    milliseconds: float


@dataclass(frozen=True)
class OtherRows:
    """What the sizes score on rows of another domain.

    Args:
        content_hash: Tells the rows.
        rows: Their number.
        scores: The task's metrics by size and name.
    """

    content_hash: str | None
    rows: int
    scores: dict[str, dict[str, float]]


@dataclass(frozen=True)
class TaskResult:
    """The result of one training on a task.

    Args:
        benchmark: `"glue"` or `"super_glue"`.
        task: Name of the task.
        seed: Seed of the training.
        request: Everything that was asked for, which tells whether a result answers a later request.
        scores: The task's metrics by split, size and name.
        costs: What each size costs, the largest first.
        sequence_length: Tokens that FLOPs and latency are of.
        rows: Number of rows by split.
        seconds: Time of each phase.
        fold: Number of the part of the training rows that it is scored on, in a cross-validation.
        robustness: The task's metrics on perturbed texts, by kind of perturbation, size and name.
        out_of_domain: What the sizes score on rows of other domains, by the name of these.
    """

    benchmark: str
    task: str
    seed: int
    request: dict[str, Any]
    scores: Scores
    costs: dict[str, SizeCost]
    sequence_length: int
    rows: dict[str, int]
    seconds: dict[str, float] = field(default_factory=dict)
    fold: int | None = None
    robustness: Scores = field(default_factory=dict)
    out_of_domain: dict[str, OtherRows] = field(default_factory=dict)

    def save(self, folder: str | Path) -> None:
        """Writes the result into a folder, as a whole or not at all."""
        text = json.dumps({"version": VERSION, **dataclasses.asdict(self)}, indent=2)
        with replaced_file(Path(folder) / RESULT_NAME) as file:
            file.write((text + "\n").encode())

    @classmethod
    def load(cls, folder: str | Path) -> "TaskResult | None":
        """Reads the result of a folder; None if there is none yet.

        Raises:
            ValueError: If the file is none, or of another version.
        """
        path = Path(folder) / RESULT_NAME
        if not path.is_file():
            return None
        try:
            values: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            version = values["version"]
            if version == VERSION:
                known = {name: value for name, value in values.items() if name != "version"}
                costs = {size: SizeCost(**cost) for size, cost in known["costs"].items()}
                others = {name: OtherRows(**of) for name, of in known.get("out_of_domain", {}).items()}
                return cls(**{**known, "costs": costs, "out_of_domain": others})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no result of a task ({error}): remove its folder, to train again.") from None
        raise ValueError(f"{path} is of version {version}, and not {VERSION}: remove its folder, to train again.")
