"""Texts with words in them that the task is about, which are put between marks.

Marks need no head of their own: a size of the family stays an ordinary sequence classifier, which every runtime and
the Auto classes know.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from .input_formats import Example, InputFormat, Row, Span


@dataclass(frozen=True)
class MarkedWords(InputFormat):
    """Two sentences with one word in common, marked in both: the same meaning or not (WiC)."""

    markers: ClassVar[tuple[str, ...]] = ("*",)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.text_columns, "start1", "start2", "end1", "end2")

    @property
    def text_columns(self) -> tuple[str, ...]:
        return ("sentence1", "sentence2")

    def examples(self, row: Row) -> list[Example]:
        texts, spans = [], []
        for number, suffix in enumerate("12"):
            sentence, start, end = row[f"sentence{suffix}"], row[f"start{suffix}"], row[f"end{suffix}"]
            if not 0 <= start < end <= len(sentence):
                raise ValueError(
                    f"start{suffix}={start}, end{suffix}={end} is no part of sentence{suffix}={sentence!r}, which has "
                    f"{len(sentence)} characters."
                )
            text, (span,) = mark(sentence, [(start, end, self.markers[0])])
            texts.append(text)
            spans.append(Span(number, *span))
        return [Example(tuple(texts), row.get("label"), tuple(spans))]


@dataclass(frozen=True)
class MarkedMentions(InputFormat):
    """A text with a noun and a pronoun, each between marks of its own: the same thing or not (WSC).

    The rows count words between spaces. Where the words at that place are others, as in some rows of `wsc`, the place
    nearest to it that has the right ones is meant.
    """

    markers: ClassVar[tuple[str, ...]] = ("*", "#")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.text_columns, "span1_index", "span2_index")

    @property
    def text_columns(self) -> tuple[str, ...]:
        return ("text", "span1_text", "span2_text")

    def examples(self, row: Row) -> list[Example]:
        spans = [find_words(row["text"], row[f"span{i}_text"], row[f"span{i}_index"]) for i in (1, 2)]
        text, places = mark(row["text"], [(*span, mark_) for span, mark_ in zip(spans, self.markers, strict=True)])
        return [Example((text,), row.get("label"), tuple(Span(0, *place) for place in places))]


def mark(text: str, spans: list[tuple[int, int, str]]) -> tuple[str, list[tuple[int, int]]]:
    """Puts marks around parts of a text.

    Args:
        text: The text.
        spans: First character, past the last one, and mark of each part. One may lie within another.

    Returns:
        The marked text, and where each part lies in it, with its marks.
    """
    # Where several meet: ends before begins, an inner end before an outer one, an outer begin before an inner one.
    inserted = [(end, 0, -start, -i, f" {mark_}") for i, (start, end, mark_) in enumerate(spans)]
    inserted += [(start, 1, -end, i, f"{mark_} ") for i, (start, end, mark_) in enumerate(spans)]
    marked, last = "", 0
    places = [[0, 0] for _ in spans]
    for position, is_begin, _, number, piece in sorted(inserted):
        i = abs(number)
        marked, last = marked + text[last:position], position
        if is_begin:
            places[i][0] = len(marked)
        marked += piece
        if not is_begin:
            places[i][1] = len(marked)
    return marked + text[last:], [(start, end) for start, end in places]


def find_words(text: str, words: str, index: int) -> tuple[int, int]:
    """Finds words in a text by their number.

    Args:
        text: The text.
        words: What is looked for, without regard to case; punctuation may follow it in the text.
        index: How many words, separated by spaces, stand before it.

    Returns:
        First character, and past the last one: of the occurrence nearest to `index`.

    Raises:
        ValueError: If the text does not have these words.
    """
    pattern = r"\s+".join(map(re.escape, words.split()))
    occurrences = re.finditer(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE)
    words_before = [
        (len(text[: match.start()].split()) - (text[match.start() - 1 : match.start()].strip() != ""), match)
        for match in occurrences  # a quotation mark before a word is a part of it
    ]
    found = [(abs(before - index), *match.span()) for before, match in words_before]
    if not words.strip() or not found:
        raise ValueError(f"{words!r}, at word {index}, is not in the text {text!r}.")
    _, start, end = min(found)
    return start, end
