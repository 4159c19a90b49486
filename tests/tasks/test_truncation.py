"""Truncation is the tokenizer's own without spans; with spans it equals a search over all windows that hold them."""

import random
import re
from functools import partial

import pytest

from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.input_formats import Example, Span
from hf_elastic.tasks.marked_spans import mark
from hf_elastic.tasks.truncation import tokenize

from .benchmark_rows import real_rows
from .tiny_tokenizers import SENTENCES, byte_level_bpe, unigram, wordpiece

WORDS = [word.strip(".,“”…") for sentence in SENTENCES[:3] for word in sentence.split()]


@pytest.fixture(params=["WordPiece", "byte-level BPE", "Unigram"], scope="module")
def tokenizer(request, minilm):
    makers = {"WordPiece": partial(wordpiece, minilm), "byte-level BPE": byte_level_bpe, "Unigram": unigram}
    return makers[request.param]()


def random_example(rng, pair, spans):
    """Texts of up to 30 words, with words between marks in those texts that `spans` says."""
    texts, places = [], []
    for number in range(1 + pair):
        words = rng.choices(WORDS, k=rng.randint(4, 30))
        text, found = " ".join(words), []
        if number in spans:
            for mark_ in rng.sample("*#", k=rng.randint(1, 2)):
                first = rng.randrange(len(words))
                start = len(" ".join(words[:first])) + (first > 0)
                found.append((start, start + len(" ".join(words[first : first + rng.randint(1, 2)])), mark_))
        text, marked = mark(text, found)
        texts.append(text)
        places += [Span(number, *place) for place in marked]
    return Example(tuple(texts), None, tuple(places))


def reference(example, tokenizer, max_length):
    """The best windows of the whole tokenisation, by trying all of them; None if there are none."""
    whole, own = (
        tokenizer(*example.texts, truncation="longest_first" if length else False, max_length=length)
        for length in (None, max_length)
    )
    texts = [
        [i for i, number in enumerate(whole.sequence_ids()) if number == text] for text in range(len(example.texts))
    ]
    usual = [own.sequence_ids().count(text) for text in range(len(example.texts))]
    inside = [set() for _ in texts]
    for span in example.spans:
        found = {whole.char_to_token(0, char, sequence_index=span.text) for char in range(span.start, span.end)}
        inside[span.text] |= found - {None}
    possible = []
    for moved in range(-usual[-1], usual[0] + 1) if len(texts) == 2 else [0]:
        lengths = [usual[0] - moved, *(length + moved for length in usual[1:])]
        windows = []
        for tokens, length, needed in zip(texts, lengths, inside, strict=True):
            starts = range(len(tokens) - length + 1)
            windows.append(next((tokens[i : i + length] for i in starts if needed <= {*tokens[i : i + length]}), None))
        if None not in windows:
            possible.append((abs(moved), windows))
    if not possible:
        return None
    _, windows = min(possible, key=lambda one: one[0])
    special = [i for i, number in enumerate(whole.sequence_ids()) if number is None]
    kept = sorted(special + [token for window in windows for token in window])
    return {name: [values[i] for i in kept] for name, values in whole.items()}


def first_row(encoded):
    return {name: rows[0] for name, rows in encoded.items()}


def letters(text):
    return re.sub(r"\s", "", text).lower()


@pytest.mark.parametrize("pair", [False, True])
def test_without_spans_it_is_the_tokenizers_own(tokenizer, pair):
    rng = random.Random(0)
    for max_length in (6, 7, 12, 25, 40, 200):
        examples = [random_example(rng, pair, spans=()) for _ in range(20)]
        texts = [list(column) for column in zip(*(example.texts for example in examples), strict=True)]
        expected = tokenizer(*texts, truncation="longest_first", max_length=max_length)
        assert tokenize(examples, tokenizer, max_length) == dict(expected)


@pytest.mark.parametrize(("pair", "spans"), [(False, (0,)), (True, (0,)), (True, (1,)), (True, (0, 1))])
def test_with_spans_it_is_the_best_of_all_windows(tokenizer, pair, spans):
    rng = random.Random(1)
    cut = impossible = 0
    for _ in range(60):
        example, max_length = random_example(rng, pair, spans), rng.randint(8, 45)
        expected = reference(example, tokenizer, max_length)
        if expected is None:
            impossible += 1
            with pytest.raises(ValueError, match=f"max_length={max_length} would cut off what the task is about"):
                tokenize([example], tokenizer, max_length)
            continue
        encoded = first_row(tokenize([example], tokenizer, max_length))
        assert encoded == expected
        assert len(encoded["input_ids"]) <= max_length
        decoded = letters(tokenizer.decode(encoded["input_ids"]))
        assert all(letters(example.texts[span.text][span.start : span.end]) in decoded for span in example.spans)
        cut += len(tokenizer(*example.texts).input_ids) > max_length
    assert cut > 10 and impossible > 1


def test_a_batch_is_what_its_examples_are_alone(tokenizer):
    rng = random.Random(2)
    examples = [random_example(rng, True, spans=(0,) if i % 2 else ()) for i in range(12)]
    together = tokenize(examples, tokenizer, 45)
    alone = [tokenize([example], tokenizer, 45) for example in examples]
    assert together == {name: [one[name][0] for one in alone] for name in together}


def test_where_the_usual_cut_keeps_the_spans_nothing_else_is_done(tokenizer):
    text, ((start, end),) = mark(" ".join(WORDS), [(0, len(WORDS[0]), "*")])
    encoded = tokenize([Example((text, text), None, (Span(0, start, end),))], tokenizer, 20)
    assert encoded == dict(tokenizer([text], [text], truncation="longest_first", max_length=20))


def test_all_parts_of_a_character_stay():
    tokenizer = byte_level_bpe()
    text = "a b c d e f 鯨 g h i j k l"
    place = text.index("鯨")
    parts = tokenizer("鯨", add_special_tokens=False).input_ids
    assert len(parts) == 3
    (ids,) = tokenize([Example((text,), None, (Span(0, place, place + 1),))], tokenizer, 6)["input_ids"]
    assert ids[2:5] == parts


def test_the_error_says_what_is_needed(minilm):
    tokenizer = wordpiece(minilm)
    text = "* Mark * went home after # he # had slept"
    example = Example((text,), None, (Span(0, 0, 8), Span(0, 25, 31)))
    with pytest.raises(
        ValueError,
        match=r"^max_length=9 would cut off .*'\* Mark \*' and '# he #' \(text 1\) with what lies between takes 9 "
        r"tokens, and 2 are special ones\. Give a max_length of at least 11\.",
    ):
        tokenize([example], tokenizer, 9)
    assert tokenizer.decode(tokenize([example], tokenizer, 11)["input_ids"][0], skip_special_tokens=True) == (
        "* mark * went home after # he #"
    )


def test_a_span_that_the_tokenizer_drops_is_an_error(minilm):
    with pytest.raises(ValueError, match=r"makes no token of '\\x00' in 'a \\x00 b'"):
        tokenize([Example(("a \x00 b",), None, (Span(0, 2, 3),))], wordpiece(minilm), 16)


def test_real_wsc_rows_keep_both_mentions_or_say_that_they_cannot(glue, minilm):
    tokenizer, task = wordpiece(minilm), find_task("super_glue", "wsc")
    kept = refused = 0
    for row in real_rows(glue, "super_glue", "wsc"):
        (example,) = task.input_format.examples(row)
        spans = [example.texts[0][span.start : span.end] for span in example.spans]
        expected = reference(example, tokenizer, 32)
        if expected is None:
            refused += 1
            with pytest.raises(ValueError, match="Give a max_length of at least"):
                tokenize([example], tokenizer, 32)
            continue
        encoded = first_row(tokenize([example], tokenizer, 32))
        assert encoded == expected
        decoded = letters(tokenizer.decode(encoded["input_ids"]))
        assert all(letters(span) in decoded for span in spans)
        kept += len(encoded["input_ids"]) == 32
    assert kept > 100 and refused > 10
