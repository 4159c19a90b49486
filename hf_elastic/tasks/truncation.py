"""Tokenising examples so that the parts that the task is about stay.

What is distinctive: a text that is too long is not cut and tokenised again, but loses tokens of its whole tokenisation
at its ends. So what stays has the tokens that it has in the whole text, whatever the tokenizer makes of word ends, and
the length is right at once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .input_formats import Example

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def tokenize(
    examples: Sequence[Example], tokenizer: "PreTrainedTokenizerBase", max_length: int
) -> dict[str, list[list[int]]]:
    """Tokenises examples, the longer text of a pair shortened first.

    Without spans this is the tokenizer's own `truncation="longest_first"`. With spans, each text that is too long
    keeps a window of as many tokens, which begins where the text begins, or as little later as its spans need. Where
    they need more than that, the other text of the pair gives what its own spans can spare.

    Args:
        examples: All of one text, or all of two.
        tokenizer: A fast tokenizer.
        max_length: Tokens that an example may have, special ones included.

    Returns:
        The tokenizer's columns, such as `input_ids`, with one list for each example.

    Raises:
        ValueError: If spans take more than `max_length`, or the tokenizer makes nothing of one. It names them, and
            what they need.
    """
    texts = [list(column) for column in zip(*(example.texts for example in examples), strict=True)]
    if not any(example.spans for example in examples):
        return dict(tokenizer(*texts, truncation="longest_first", max_length=max_length))
    encoded = tokenizer(*texts, return_offsets_mapping=True, verbose=False)
    offsets = encoded.pop("offset_mapping")
    kept = [_kept(example, encoded.sequence_ids(i), offsets[i], max_length) for i, example in enumerate(examples)]
    return {
        name: [[row[token] for token in tokens] for row, tokens in zip(rows, kept, strict=True)]
        for name, rows in encoded.items()
    }


def _kept(
    example: Example, sequence_ids: list[int | None], offsets: list[tuple[int, int]], max_length: int
) -> list[int]:
    """Gives the positions of an example's tokens that stay: all special ones, and a window of each text's."""
    tokens = [[i for i, text in enumerate(sequence_ids) if text == number] for number in range(len(example.texts))]
    spans = [_tokens_of_spans(example, number, [offsets[token] for token in own]) for number, own in enumerate(tokens)]
    if len(sequence_ids) <= max_length:
        return list(range(len(sequence_ids)))
    special = sequence_ids.count(None)
    needed = [past - first for first, past in spans]
    if sum(needed) > max_length - special:
        raise ValueError(_too_short(example, needed, special, max_length))
    kept = [i for i, text in enumerate(sequence_ids) if text is None]
    budgets = _budgets([len(own) for own in tokens], needed, max_length - special)
    for own, (_, past), budget in zip(tokens, spans, budgets, strict=True):
        start = max(0, past - budget)
        kept += own[start : start + budget]
    return sorted(kept)


def _tokens_of_spans(example: Example, number: int, offsets: list[tuple[int, int]]) -> tuple[int, int]:
    """Gives the first token that belongs to a span of a text, and the one past the last; zeros without spans."""
    found: list[int] = []
    for span in example.spans:
        if span.text == number:
            inside = [i for i, (start, end) in enumerate(offsets) if start < span.end and end > span.start]
            if not inside:
                words = example.texts[number][span.start : span.end]
                raise ValueError(f"The tokenizer makes no token of {words!r} in {example.texts[number]!r}.")
            found += inside
    return (min(found), max(found) + 1) if found else (0, 0)


def _budgets(lengths: list[int], needed: list[int], room: int) -> list[int]:
    """Gives how many tokens each text keeps where there is less room than tokens."""
    if len(lengths) == 1:
        return [room]
    shorter = min(*lengths, room // 2)
    first = shorter if lengths[0] <= lengths[1] else room - shorter
    first = min(max(first, needed[0]), room - needed[1])
    return [first, room - first]


def _too_short(example: Example, needed: list[int], special: int, max_length: int) -> str:
    parts = []
    for number, length in enumerate(needed):
        words = [repr(example.texts[number][span.start : span.end]) for span in example.spans if span.text == number]
        if words:
            parts.append(f"{' and '.join(words)} (text {number + 1}) with what lies between takes {length} tokens")
    return (
        f"max_length={max_length} would cut off what the task is about: {', '.join(parts)}, and {special} are special "
        f"ones. Give a max_length of at least {sum(needed) + special}. The text: {' | '.join(example.texts)!r}"
    )
