"""The checkpoints that can become a supernet: one file each, registered here and nowhere else."""

from .bert import BERT
from .source import Head, Source, UnsupportedSourceError

SOURCES: dict[str, Source] = {source.model_type: source for source in (BERT,)}

__all__ = ["SOURCES", "Head", "Source", "UnsupportedSourceError", "find_source"]


def find_source(model_type: str | None) -> Source:
    """Gives the source of a model type.

    Raises:
        UnsupportedSourceError: If there is none.
    """
    if model_type not in SOURCES:
        raise UnsupportedSourceError(
            f"Model type {model_type!r} cannot be converted. Supported are: "
            + "; ".join(f"{source.model_type} ({', '.join(source.heads)})" for source in SOURCES.values())
            + "."
        )
    return SOURCES[model_type]
