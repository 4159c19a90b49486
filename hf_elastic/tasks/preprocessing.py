"""Preprocessing that cannot drift: what made a checkpoint's inputs, kept with it and compared when it is used again.

A model that reads its texts with another tokenizer, case, length or order of labels than it was trained with still
answers, only worse. So the settings travel with the weights: in the configuration, which every copy of the model has,
and in a file beside it, for readers.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .task import Task

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

FILE_NAME = "preprocessing.json"
# Raised when the same settings come to give other inputs, so that no older checkpoint or cache passes for a new one.
VERSION = 1
# Parts of a serialised tokenizer that do not change how texts become tokens, or are set anew by each call.
_NO_SETTINGS = ("version", "truncation", "padding", "decoder")


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How the rows of a task become a model's inputs.

    Args:
        version: Of this package's formats.
        benchmark: Of the task that the model answers.
        task: That task; of a diagnostic, the one whose model answers it.
        tokenizer_fingerprint: See [`fingerprint`].
        lower_cases: Whether the tokenizer makes all letters small.
        max_length: Tokens that an example may have.
        markers: Characters that are put around words.
        label_names: Names of the labels in the order of their ids.

    Example:
        >>> preprocessing = Preprocessing.of(find_task("glue", "rte"), tokenizer, max_length=256)
        >>> preprocessing.keep_in(model.config)
        >>> preprocessing.save("rte-model")
    """

    version: int
    benchmark: str
    task: str
    tokenizer_fingerprint: str
    lower_cases: bool
    max_length: int
    markers: tuple[str, ...]
    label_names: tuple[str, ...]

    @classmethod
    def of(cls, task: Task, tokenizer: "PreTrainedTokenizerBase", max_length: int) -> "Preprocessing":
        """Gives the present settings, checked.

        Args:
            task: The task.
            tokenizer: A fast tokenizer.
            max_length: Tokens that an example may have.

        Raises:
            ValueError: If the tokenizer has no fast backend, does not know a marker of the task, or cannot give
                `max_length` tokens.
        """
        digest = fingerprint(tokenizer)
        smallest, largest = tokenizer.num_special_tokens_to_add(pair=True) + 2, tokenizer.model_max_length
        if not smallest <= max_length <= largest:
            raise ValueError(
                f"max_length={max_length}: this tokenizer's model takes from {smallest} to {largest} tokens."
            )
        for marker in task.input_format.markers:
            ids = tokenizer(marker, add_special_tokens=False)["input_ids"]
            if not ids or tokenizer.unk_token_id in ids:
                raise ValueError(
                    f"The tokenizer does not know {marker!r}, which marks words of {task.name}: add it with "
                    f"tokenizer.add_tokens([{marker!r}]) and model.resize_token_embeddings, or use another checkpoint."
                )
        return cls(
            version=VERSION,
            benchmark=task.benchmark,
            task=task.model_of or task.name,
            tokenizer_fingerprint=digest,
            lower_cases=_lower_cases(tokenizer),
            max_length=max_length,
            markers=task.input_format.markers,
            label_names=task.label_names,
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Preprocessing":
        """Reads what [`to_dict`] gave.

        Raises:
            ValueError: If settings are missing or unknown, as in what another version of the package wrote.
        """
        names = {field.name for field in fields(cls)}
        if names != values.keys():
            raise ValueError(
                f"The saved preprocessing has version {values.get('version')!r} and the settings {sorted(values)}; "
                f"this hf_elastic has version {VERSION} and {sorted(names)}: use the hf_elastic that saved it, or "
                "train again."
            )
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """Gives the settings as JSON knows them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def keep_in(self, config: "PreTrainedConfig") -> None:
        """Puts the settings into a model's configuration, which saves them with it and gives them to its members."""
        config.preprocessing = self.to_dict()

    def save(self, folder: str | Path) -> None:
        """Writes the settings into a checkpoint's folder."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False)
        (Path(folder) / FILE_NAME).write_text(text + "\n", encoding="utf-8")

    def check(self, present: "Preprocessing") -> None:
        """Compares these settings, which a checkpoint was saved with, with those that it is to be used with.

        Raises:
            ValueError: If any differ. It names them all.
        """
        different = [
            f"{field.name} was {getattr(self, field.name)!r} and is now {getattr(present, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(present, field.name)
        ]
        if different:
            raise ValueError(
                f"The checkpoint was trained with other preprocessing: {'; '.join(different)}. Use the saved settings "
                "and the tokenizer in the checkpoint's folder, or fine-tune the checkpoint anew with those of now."
            )


def saved_preprocessing(folder: str | Path, config: "PreTrainedConfig") -> Preprocessing | None:
    """Gives what a checkpoint was trained with, or None if it does not say.

    Args:
        folder: Folder of the checkpoint; its Hub id, of which only the configuration is read.
        config: Its configuration.

    Raises:
        ValueError: If the folder's file and the configuration contradict each other, or another version wrote them.
    """
    in_config = getattr(config, "preprocessing", None)
    kept = None if in_config is None else Preprocessing.from_dict(in_config)
    path = Path(folder) / FILE_NAME
    if not path.is_file():
        return kept
    try:
        written = Preprocessing.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON ({error}): copy it from the checkpoint again, or remove it.") from None
    if kept not in (None, written):
        raise ValueError(
            f"{path} and the configuration beside it are not of one training: {written} and {kept}. Remove the one "
            "that does not belong to the weights."
        )
    return written


def fingerprint(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Gives a SHA-256 of what a tokenizer does: the same wherever it is loaded from, and whatever it was used for.

    Args:
        tokenizer: A fast tokenizer.

    Raises:
        ValueError: If it is none.
    """
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} is no fast tokenizer, which tells where in a text its tokens are: load the "
            "checkpoint's tokenizer with AutoTokenizer, or convert it (transformers.convert_slow_tokenizer)."
        )
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    settings = {
        "backend": {name: value for name, value in backend.items() if name not in _NO_SETTINGS},
        "special_tokens": tokenizer.special_tokens_map,
        "inputs": tokenizer.model_input_names,
        "truncation_side": tokenizer.truncation_side,
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def _lower_cases(tokenizer: "PreTrainedTokenizerBase") -> bool:
    normalizer = tokenizer.backend_tokenizer.normalizer
    return normalizer is not None and "A" not in normalizer.normalize_str("A")
