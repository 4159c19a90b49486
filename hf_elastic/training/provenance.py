"""Where a model comes from: seed, versions, data and arguments of its training, without anything private.

It is read by model cards and checkpoints, which are published: tokens, paths, names of machines, users and
repositories are left out, and of the data only a hash is kept.
"""

from __future__ import annotations

import json
import math
import platform
import re
import subprocess
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from .data_fingerprint import DataFingerprint

if TYPE_CHECKING:
    from transformers import TrainingArguments

RUN_NAME = "run.json"

_PACKAGES = ("transformers", "torch", "accelerate", "datasets")
_GIT = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
# Words in the names of arguments whose values belong to a machine or a person.
_PRIVATE_WORDS = {
    *("token", "key", "secret", "password", "credential", "credentials"),
    *("dir", "path", "file", "url", "uri", "host", "hostname", "user", "username", "hub", "trackio", "project"),
}
_PRIVATE_NAMES = {"run_name", "resume_from_checkpoint", "local_rank", "deepspeed"}
# Arguments whose entries have the names of sizes, which their author chose, and not of arguments.
_NAMED_AS_SIZES = {"subnet_weights", "subnet_max_lengths"}
_PLAIN_TEXT = re.compile(r"[\w.,=+()\[\] -]*")  # no slash, no colon, no @
_WORD = r"(?:[A-Za-z][a-z]{,14}\d{,3}|\d{1,4})"
_PRIVATE_FORM = re.compile(
    r"\b(hf|sk|gh[opsu]|github_pat)[_-]\w+"  # tokens by their prefix
    rf"|(?<![\w-])(?!{_WORD}(?:[_-]{_WORD})*(?![\w-]))(?=[\w-]*\d)[\w-]{{20,}}"  # and by their length, unlike words
    r"|\d+\.\d+\.\d+\.\d+",  # internet addresses
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RunRecord:
    """What a training can be told by and repeated with.

    Args:
        seed (`int`): Seed of everything that is drawn.
        data_seed (`int`, *optional*): Seed of the order of the data, where it has one of its own.
        versions (`dict[str, str]`): Versions of hf_elastic, Python and the libraries.
        git_commit (`str`, *optional*): Commit of the working directory, with `-dirty` if files differed from it.
        data (`dict[str, DataFingerprint]`): The data by their use: `"train"`, `"evaluation"`, `"test"`.
        arguments (`dict[str, Any]`): All training arguments but private ones.

    Example:
        >>> RunRecord.of(trainer.args, trainer.train_dataset, trainer.eval_dataset).save("out")
    """

    seed: int
    data_seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    git_commit: str | None = None
    data: dict[str, DataFingerprint] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, args: TrainingArguments, train_dataset: Any = None, eval_dataset: Any = None) -> RunRecord:
        """Describes a training. It reads a part of the data, and asks git for the commit.

        Args:
            args ([`~transformers.TrainingArguments`]): Its arguments.
            train_dataset (`Any`, *optional*): Its training data.
            eval_dataset (`Any`, *optional*): Its evaluation data, or several by name.
        """
        evaluation = {"evaluation": eval_dataset}
        if isinstance(eval_dataset, Mapping):
            evaluation = {f"evaluation ({name})": dataset for name, dataset in eval_dataset.items()}
        datasets = {"train": train_dataset, **evaluation}
        return cls(
            seed=args.seed,
            data_seed=args.data_seed,
            versions=_versions(),
            git_commit=_git_commit(),
            data={use: DataFingerprint.of(dataset) for use, dataset in datasets.items() if dataset is not None},
            arguments=public_arguments(args),
        )

    @classmethod
    def read(cls, values: RunRecord | Mapping[str, Any]) -> RunRecord:
        """Accepts a record, or what its JSON says.

        Raises:
            ValueError: If it is neither.
        """
        if isinstance(values, cls):
            return values
        try:
            known = {name: values[name] for name in (known.name for known in fields(cls)) if name in values}
            data = {use: DataFingerprint(**of_data) for use, of_data in known.pop("data", {}).items()}
            return cls(**known, data=data)
        except (AttributeError, TypeError) as error:
            raise ValueError(f"This is no record of a training: {error}.") from None

    def save(self, folder: str | Path) -> None:
        """Writes `run.json` into a folder, which is made if it does not exist."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False, allow_nan=False)
        (folder / RUN_NAME).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> RunRecord | None:
        """Reads `run.json` of a folder, if it has one.

        Raises:
            ValueError: If the file holds something else.
        """
        file = Path(folder) / RUN_NAME
        if not file.is_file():
            return None
        try:
            return cls.read(json.loads(file.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{file} cannot be read: {error} Remove it, or train again.") from None


def public_arguments(args: TrainingArguments) -> dict[str, Any]:
    """The arguments of a training that may be published.

    Numbers and switches are, and short text without slashes, such as the names of optimizers and metrics. Left out is
    whatever has the name or the form of a token, a path, an address, a machine, a user or a repository.

    Args:
        args ([`~transformers.TrainingArguments`]): The arguments.

    Returns:
        Values that JSON has, by the name of the argument.

    Example:
        >>> public_arguments(TrainingArguments("/data/out", hub_token="hf_...", seed=1))["seed"]
        1
    """
    return _public_part(args.to_dict())


def _public_part(value: Any, named_as_sizes: bool = False) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        private = set() if named_as_sizes else _PRIVATE_WORDS
        entries = {str(name): entry for name, entry in value.items() if _is_public(entry, str(name), private)}
        return {name: _public_part(entry, name in _NAMED_AS_SIZES) for name, entry in entries.items()}
    if isinstance(value, list | tuple):
        return [_public_part(entry) for entry in value if _is_public(entry)]
    return value


def _is_public(value: Any, name: str = "", private_words: Set[str] = frozenset()) -> bool:
    value = value.value if isinstance(value, Enum) else value
    if name in _PRIVATE_NAMES or private_words & set(name.lower().split("_")) or not _is_plain(name):
        return False
    if isinstance(value, float):
        return math.isfinite(value)
    return _is_plain(value) if isinstance(value, str) else isinstance(value, int | Mapping | list | tuple | None)


def _is_plain(text: str) -> bool:
    machine = platform.node()
    return bool(_PLAIN_TEXT.fullmatch(text)) and not _PRIVATE_FORM.search(text) and not (machine and machine in text)


def _versions() -> dict[str, str]:
    versions = {"hf_elastic": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # it is optional
            continue
    return versions


def _git_commit() -> str | None:
    try:
        result = subprocess.run(_GIT, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or one without a commit
        return None
    return result.stdout.strip() or None
