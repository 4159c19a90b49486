"""What can be known of a teacher's tokenizer without loading one: its files, and special tokens in configurations."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

_SPECIAL_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")


def different_special_token(theirs: Any, ours: Any) -> str | None:
    """The first setting of two configurations that gives a special token another id, where both name it."""
    for setting in _SPECIAL_TOKENS:
        found, expected = getattr(theirs, setting, None), getattr(ours, setting, None)
        if None not in (found, expected) and found != expected:
            return setting
    return None


def different_token(name_or_path: str, vocabulary: Mapping[str, int]) -> str | None:
    """The first token that a checkpoint's tokenizer gives another id than a vocabulary does.

    Reads only files that are on this machine: those of a folder, or of the cache of the Hub.

    Args:
        name_or_path: Where a model was loaded from.
        vocabulary: Ids by token, e.g. `tokenizer.get_vocab()`.

    Returns:
        The token; None if all are the same, or nothing is known.
    """
    theirs = _read_vocabulary(name_or_path)
    if theirs is None:
        return None
    return next((token for token, i in theirs.items() if vocabulary.get(token) != i), None)


def _read_vocabulary(name_or_path: str) -> dict[str, int] | None:
    """Ids by token, of the files that hold them as text."""
    fast = _find_file(name_or_path, "tokenizer.json")
    if fast is not None:
        vocabulary = json.loads(fast.read_text(encoding="utf-8"))["model"].get("vocab")
        if isinstance(vocabulary, list):  # of a unigram model: tokens with their scores, in order
            return {token: i for i, (token, _) in enumerate(vocabulary)}
        return vocabulary
    listed = _find_file(name_or_path, "vocab.txt")
    if listed is None:
        return None
    return {token: i for i, token in enumerate(listed.read_text(encoding="utf-8").rstrip("\n").split("\n"))}


def _find_file(name_or_path: str, name: str) -> Path | None:
    try:
        return Path(cached_file(name_or_path, name, local_files_only=True))
    except OSError:  # it is not there, or the model was not loaded from anywhere
        return None
