"""The formats that a member can be exported in. One function per format, in one table."""

from collections.abc import Callable, Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Writes a model, and its tokenizer where the format has a place for it, into a folder; gives the files with weights.
FormatWriter = Callable[[PreTrainedModel, PreTrainedTokenizerBase, Path], list[Path]]


def write_safetensors(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> list[Path]:
    """Writes an ordinary checkpoint: weights, configuration, tokenizer, and the code that loads it by remote code."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sorted(folder.glob("*.safetensors"))


CHECKPOINT_FORMAT = "safetensors"  # what makes a member loadable, so every member has it
FORMATS: dict[str, FormatWriter] = {CHECKPOINT_FORMAT: write_safetensors}


def check_formats(formats: Sequence[str]) -> list[str]:
    """Checks names of formats.

    Returns:
        `list[str]`: `"safetensors"` and the others, each once.

    Raises:
        ValueError: If one is unknown; lists the known ones.
        TypeError: If it is a single name.
    """
    if isinstance(formats, str):
        raise TypeError(f"formats={formats!r}: give a sequence of names, e.g. formats=[{formats!r}].")
    for name in formats:
        if name not in FORMATS:
            raise ValueError(f"Unknown export format {name!r}: known are {list(FORMATS)}.")
    return list(dict.fromkeys([CHECKPOINT_FORMAT, *formats]))
