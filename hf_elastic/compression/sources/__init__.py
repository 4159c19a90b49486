"""The checkpoints that can become a supernet: one file each, registered here and nowhere else.

To add one:

1. Write `<model_type>.py` with a [`Source`]: its classes, the fields of its configuration and the names of its
   weights. Descendants of BERT take over what `bert.py` exports, see `electra.py`; others begin from `distilbert.py`,
   or, where a weight holds several, from `modernbert.py`.
2. What its forward pass fixes in code (an activation, an epsilon, a dropout) goes to `settings`; what its
   configuration can say and [`ElasticConfig`] cannot goes to `required`. Where the elastic model lacks something, it
   gets a field with a standard name in `ElasticConfig`, whose default is what BERT does.
3. Register it in `SOURCES` below.
4. Add a tiny configuration of it to `tests/compression/sources.py`: all tests of converting, ranking, cutting, saving
   and going back then run over it.
"""

from .bert import BERT
from .distilbert import DISTILBERT
from .electra import ELECTRA
from .modernbert import MODERNBERT
from .roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from .source import HEAD_FIELDS, START_AND_END, Head, Source, UnsupportedSourceError

SOURCES: dict[str, Source] = {
    source.model_type: source for source in (BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, ELECTRA, DISTILBERT, MODERNBERT)
}

__all__ = ["HEAD_FIELDS", "SOURCES", "START_AND_END", "Head", "Source", "UnsupportedSourceError", "find_source"]


def find_source(model_type: str | None) -> Source:
    """Gives the source of a model type.

    Raises:
        UnsupportedSourceError: If there is none.
    """
    if model_type not in SOURCES:
        raise UnsupportedSourceError(
            f"Model type {model_type!r} cannot be converted. Supported are {', '.join(SOURCES)}."
        )
    return SOURCES[model_type]
