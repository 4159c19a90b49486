"""What sizes scored, kept in a storage of Optuna."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ..modeling.subnet_elastic import SubnetConfig

if TYPE_CHECKING:
    from optuna.storages import BaseStorage


class ScoreArchive:
    """Scores of one kind by size, each a trial of a study.

    Args:
        storage (`BaseStorage`):
            As [`open_storage`] gives it.
        name (`str`):
            What the scores are of: other weights, data or functions need another name.

    Attributes:
        scores (`dict[str, float]`): By [`size_key`].
        subnets (`dict[str, SubnetConfig]`): The sizes themselves, in the order in which they were scored.
    """

    def __init__(self, storage: "BaseStorage", name: str):
        import optuna

        self.study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
        self.scores: dict[str, float] = {}
        self.subnets: dict[str, SubnetConfig] = {}
        for trial in self.study.get_trials(deepcopy=False):
            key = trial.user_attrs["size"]
            self.scores[key] = trial.value
            self.subnets[key] = SubnetConfig.from_dict(json.loads(trial.user_attrs["subnet"]))

    def add(self, key: str, subnet: SubnetConfig, score: float) -> None:
        """Keeps a score."""
        import optuna

        attributes = {"size": key, "subnet": json.dumps(subnet.to_dict())}
        self.study.add_trial(optuna.trial.create_trial(value=score, user_attrs=attributes))
        self.scores[key], self.subnets[key] = score, subnet


def open_storage(storage: str | Path | None) -> "BaseStorage":
    """Opens a storage of Optuna.

    Args:
        storage (`str` or `Path`, *optional*):
            A file for a journal, the URL of a database, or None to keep everything in memory.

    Raises:
        ImportError: If Optuna is not installed.
        ValueError: If the file is something else.
    """
    optuna = require_optuna()
    if storage is None:
        return optuna.storages.InMemoryStorage()
    if "://" in str(storage):
        return optuna.storages.RDBStorage(str(storage))
    from optuna.storages.journal import JournalFileBackend

    path = Path(storage)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        _mend_journal(path)
    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))


def _mend_journal(path: Path) -> None:
    """Cuts off a line that a process was killed at, to which the next one would be joined.

    Raises:
        ValueError: If the file is no journal.
    """
    content = path.read_bytes()
    first, _, _ = content.partition(b"\n")
    try:
        is_journal = not content or "op_code" in json.loads(first)
    except (ValueError, TypeError):
        is_journal = False
    if not is_journal:
        raise ValueError(f"storage={str(path)!r} is no journal of a search: give another file.")
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        path.write_bytes(whole)


def require_optuna() -> ModuleType:
    """Gives the module `optuna`.

    Raises:
        ImportError: If it is not installed; says how to install it.
    """
    try:
        import optuna
    except ImportError:
        raise ImportError('A search of sizes needs `optuna`: pip install "hf_elastic[search]"') from None
    return optuna


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Lets Optuna say warnings only, until the block ends."""
    optuna = require_optuna()
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
