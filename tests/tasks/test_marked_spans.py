"""Marks stand around the words that a task is about, wherever these lie in one another."""

import pytest

from hf_elastic.tasks.marked_spans import MarkedMentions, MarkedWords, find_words, mark

from .benchmark_rows import real_rows


@pytest.mark.parametrize(
    ("text", "spans", "marked"),
    [
        ("a dog barks", [(2, 5, "*")], "a * dog * barks"),
        ("a dog bites a cat", [(2, 5, "*"), (14, 17, "#")], "a * dog * bites a # cat #"),
        ("a dog bites a cat", [(14, 17, "*"), (2, 5, "#")], "a # dog # bites a * cat *"),
        ("their mothers came", [(0, 13, "*"), (0, 5, "#")], "* # their # mothers * came"),
        ("mothers of theirs", [(11, 17, "#"), (0, 17, "*")], "* mothers of # theirs # *"),
        ("ab", [(0, 1, "*"), (1, 2, "#")], "* a *# b #"),
        ("a dog barks", [(2, 5, "*"), (2, 5, "#")], "a * # dog # * barks"),
        ("dogs", [(0, 4, "#"), (0, 4, "*")], "# * dogs * #"),
    ],
)
def test_marks_and_their_places(text, spans, marked):
    result, places = mark(text, spans)
    assert result == marked
    for (start, end, sign), (first, last) in zip(spans, places, strict=True):
        piece = result[first:last]
        assert piece.startswith(f"{sign} ") and piece.endswith(f" {sign}")
        assert "".join(c for c in piece if c not in "*# ") == text[start:end].replace(" ", "")


def test_words_are_found_nearest_to_their_number():
    text = "He said that he, not him, was he."
    assert find_words(text, "he", 0) == (0, 2)
    assert find_words(text, "he", 3) == (13, 15)
    assert find_words(text, "He", 7) == (30, 32)
    assert find_words("two\nlines here", "lines here", 1) == (4, 14)
    for words in ("hi", ""):  # "him" is another word
        with pytest.raises(ValueError, match=f"'{words}', at word 2, is not in the text"):
            find_words(text, words, 2)


@pytest.mark.parametrize("quote", ['"', "'", "(", "“"])
def test_words_behind_a_quotation_mark_are_found_and_counted(quote):
    text = f"She said: {quote}She told her that she left."
    assert find_words(text, "she", 0) == (0, 3)
    assert find_words(text, "She", 2) == (11, 14)
    assert find_words(text, "She told", 2) == (11, 19)
    assert find_words(text, "she", 6) == (29, 32)
    assert find_words(f"{quote}She left.", "she", 0) == (1, 4)
    assert [find_words(f"Say {quote}she she.", "she", index) for index in (1, 2)] == [(5, 8), (9, 12)]


def test_a_word_is_marked_in_both_sentences():
    row = {
        "word": "bank",
        "sentence1": "The bank closed.",
        "sentence2": "On the banks of it.",
        "start1": 4,
        "end1": 8,
        "start2": 7,
        "end2": 12,
        "label": 0,
    }
    (example,) = MarkedWords().examples(row)
    assert example.texts == ("The * bank * closed.", "On the * banks * of it.")
    for span, expected in zip(example.spans, ("* bank *", "* banks *"), strict=True):
        assert example.texts[span.text][span.start : span.end] == expected
    with pytest.raises(ValueError, match="start2=7, end2=40 is no part of sentence2"):
        MarkedWords().examples({**row, "end2": 40})


def test_all_mentions_of_the_real_rows_are_found(glue):
    for name in ("wsc", "wsc.fixed"):
        for split in ("train", "validation"):
            for row in real_rows(glue, "super_glue", name, split):
                (example,) = MarkedMentions().examples(row)
                for number, span in enumerate(example.spans, start=1):
                    words = example.texts[0][span.start : span.end].replace("*", "").replace("#", "").split()
                    assert " ".join(words).lower() == " ".join(row[f"span{number}_text"].split()).lower()
