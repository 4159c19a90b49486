"""Texts as people write them: with letters exchanged, in another case, with words in another order.

What is distinctive: what a task marks, and what lies between, stays as it is, and a text gets the same changes
wherever it stands.
"""

import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .input_formats import Example, InputFormat, Row, Span

_WORD = re.compile(r"\S+")


def exchange_letters(words: list[str], draw: random.Random) -> list[str]:
    """Exchanges two neighbouring letters within one of eight words, of those with four letters or more."""
    long = [i for i, word in enumerate(words) if len(word) >= 4 and word.isalpha()]
    words = list(words)
    for i in draw.sample(long, min(len(long), max(1, len(words) // 8))):
        at = draw.randrange(1, len(words[i]) - 2)
        word = words[i]
        words[i] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return words


def change_case(words: list[str], draw: random.Random) -> list[str]:
    """Writes everything in capitals, or in small letters."""
    change = draw.choice((str.upper, str.lower))
    return [change(word) for word in words]


def exchange_words(words: list[str], draw: random.Random) -> list[str]:
    """Exchanges two neighbouring words, once for every eight words."""
    words = list(words)
    for _ in range(max(1, len(words) // 8) if len(words) > 1 else 0):
        at = draw.randrange(len(words) - 1)
        words[at], words[at + 1] = words[at + 1], words[at]
    return words


PERTURBATIONS: dict[str, Callable[[list[str], random.Random], list[str]]] = {
    "typos": exchange_letters,
    "case": change_case,
    "order": exchange_words,
}


def perturb(example: Example, kind: str, seed: int = 0) -> Example:
    """Changes the texts of an example, but for its spans.

    Args:
        example: What a model reads.
        kind: One of [`PERTURBATIONS`].
        seed: Another one gives other changes.

    References:
        Belinkov and Bisk 2018, Synthetic and Natural Noise Both Break Neural Machine Translation,
        https://arxiv.org/abs/1711.02173
    """
    texts, spans = [], []
    for number, text in enumerate(example.texts):
        draw = random.Random(zlib.crc32(f"{seed} {kind} {text}".encode()))
        kept = sorted(span for span in example.spans if span.text == number)
        changed, end, moved = "", 0, {}
        for span in kept:
            if span.start >= end:  # not within the one before
                before = text[end : span.start]  # between spans it would need more room, which truncation cannot give
                changed += before if moved else _perturb_text(before, kind, draw)
                offset = len(changed) - span.start
                changed, end = changed + text[span.start : span.end], span.end
            moved[span] = Span(number, span.start + offset, span.end + offset)
        texts.append(changed + _perturb_text(text[end:], kind, draw))
        spans += [moved[span] for span in example.spans if span.text == number]
    return replace(example, texts=tuple(texts), spans=tuple(spans))


def _perturb_text(text: str, kind: str, draw: random.Random) -> str:
    words = _WORD.findall(text)
    if not words:
        return text
    changed = iter(PERTURBATIONS[kind](words, draw))
    return _WORD.sub(lambda _: next(changed), text)


@dataclass(frozen=True)
class PerturbedFormat(InputFormat):
    """A format whose examples are perturbed.

    Args:
        original: The task's own.
        kind: One of [`PERTURBATIONS`].
        seed: Another one gives other changes.
    """

    original: InputFormat
    kind: str
    seed: int = 0

    @property
    def head(self) -> str:
        return self.original.head

    @property
    def markers(self) -> tuple[str, ...]:
        return self.original.markers

    @property
    def columns(self) -> tuple[str, ...]:
        return self.original.columns

    @property
    def text_columns(self) -> tuple[str, ...]:
        return self.original.text_columns

    def examples(self, row: Row) -> list[Example]:
        return [perturb(example, self.kind, self.seed) for example in self.original.examples(row)]

    def answer(self, row: Row, logits: np.ndarray) -> object:
        return self.original.answer(row, logits)
