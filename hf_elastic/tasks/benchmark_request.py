"""What is to be run on the tasks of a benchmark, and what tells whether a result answers it."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..hub.integrity import file_hash
from ..recipes import DEFAULT_SUBNETS, TrainingSettings
from ..training.provenance import RUN_NAME
from .task import Task
from .task_data import TaskData
from .task_mixture import Mixing

if TYPE_CHECKING:
    import datasets

    from .task_data import TaskSource

# What a checkpoint is told by.
_CHECKPOINT_FILES = ("config.json", "*.safetensors", "*.bin", "tokenizer*.json", "vocab.*", "merges.txt", "*.model")
# What fine-tuning on the benchmarks' tasks takes, where neither the task nor the caller says otherwise.
TASK_SETTINGS: dict[str, Any] = {"batch_size": 32, "head_lr_multiplier": 5.0}


@dataclass(frozen=True)
class BenchmarkRequest:
    """What is to be run.

    Args:
        benchmark: `"glue"` or `"super_glue"`.
        source: Folder or Hub id of the checkpoint that every task begins with.
        new_head: Whether only the encoder of the source is taken over, see [`train_on_task`].
        data: Where the rows are, see [`read_task`].
        sizes: Multipliers of [`SubnetConfig.scaled`] by the name of each size; None for those that the supernet names.
        settings: What differs from the settings that suit each task, by the names of [`TrainingSettings`] and of
            [`ElasticTrainingArguments`].
        seeds: Seeds, each of a training of its own.
        folds: Folds of a cross-validation on the training rows; 0 scores the splits of the benchmark.
        held_out_fraction: See [`train_on_task`].
        robustness: Whether to score every size on perturbed texts as well, see [`TaskRun.robustness`].
        out_of_domain: Files of labelled rows of other domains, with the task's columns, by a name for each: what every
            size is scored on besides.
        mixing: How often each task comes where all of them are trained on one encoder, see [`train_on_tasks`]; None
            trains each by itself.

    Raises:
        ValueError: If there is one fold alone, or `robustness`, `out_of_domain` or `mixing` is wanted of folds.
    """

    benchmark: str
    source: str
    new_head: bool = False
    data: "TaskSource" = None
    sizes: Mapping[str, Mapping[str, float]] | None = field(default_factory=lambda: dict(DEFAULT_SUBNETS))
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] = (42,)
    folds: int = 0
    held_out_fraction: float = 0.0
    robustness: bool = False
    out_of_domain: Mapping[str, "str | Path | datasets.Dataset"] = field(default_factory=dict)
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        if self.folds < 0 or self.folds == 1:
            raise ValueError(f"folds={self.folds}: give at least 2, or 0 to score the splits of the benchmark.")
        if self.folds and (self.robustness or self.out_of_domain):
            raise ValueError(
                f"folds={self.folds} keeps no supernets to measure on other texts: give folds=0, or leave out "
                "robustness and out_of_domain."
            )
        if self.folds and self.mixing is not None:
            raise ValueError(f"folds={self.folds} is of one task at a time: give folds=0, or mixing=None.")

    def settings_for(self, task: Task | None, seed: int) -> TrainingSettings:
        """Gives the training settings of a task: the common ones, then the task's, then the request's.

        A supernet that was trained here has sizes in its order of units: it is not ranked again by default.

        Args:
            task: The task; None for a training on several.
            seed: Seed of the training.
        """
        in_order = {"rank_examples": 0} if Path(self.source, RUN_NAME).is_file() else {}
        of_task = {} if task is None else task.settings
        values = {**TASK_SETTINGS, **in_order, **of_task, **self.settings, "seed": seed}
        return TrainingSettings().with_arguments(values)

    def described(self, task: Task, seed: int, data: TaskData) -> dict[str, Any]:
        """Gives what a result has to agree with to answer the request, as JSON gives it back.

        Args:
            task: The task.
            seed: Seed of the training.
            data: The rows that were read.
        """
        values = {
            "source": _content(self.source),
            "new_head": self.new_head,
            "sizes": None if self.sizes is None else {name: dict(of) for name, of in self.sizes.items()},
            "settings": dataclasses.asdict(self.settings_for(task, seed)),
            "data": row_hashes(data),
            "folds": self.folds,
            "held_out_fraction": self.held_out_fraction,
            "mixing": None if self.mixing is None else dataclasses.asdict(self.mixing),
        }
        return json.loads(json.dumps(values, default=str))


def _content(source: str) -> str:
    """Tells a checkpoint by what it holds, wherever it lies: its name, and a hash of its files; a Hub id is itself."""
    folder = Path(source)
    if not folder.is_dir():
        return str(source)
    files = sorted(path for pattern in _CHECKPOINT_FILES for path in folder.glob(pattern))
    listing = "".join(f"{path.name} {file_hash(path)}\n" for path in files)
    return f"{folder.resolve().name} ({hashlib.sha256(listing.encode()).hexdigest()[:16]})"


def row_hashes(data: TaskData) -> dict[str, str]:
    """Tells the rows of each split."""
    return {split: content_hash(rows) for split, rows in data.splits.items()}


def content_hash(rows: "datasets.Dataset") -> str:
    """Tells rows by all that they hold, whatever made them."""
    table = rows.with_format("arrow")[:].combine_chunks().replace_schema_metadata(None)
    digest = hashlib.sha256(repr(table.column_names).encode())
    for column in table.columns:
        for row in range(0, len(table), 1000):
            digest.update(repr(column[row : row + 1000].to_pylist()).encode())
    return digest.hexdigest()
