"""ReCoRD's comparison of answers, against words counted by hand."""

import pytest

from hf_elastic.tasks.record_answers import answer_exact_match, answer_f1, normalize_answer


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("The White House", "white house"),
        ("  Tony \t Blair\n", "tony blair"),
        ("U.S.", "us"),
        ("St. John's", "st johns"),
        ("AN apple, a pear and the plum!", "apple pear and plum"),
        ("Athens", "athens"),  # an article within a word stays
        ("a-ha", "aha"),
        ("Al-Qaida in the Islamic Maghreb", "alqaida in islamic maghreb"),
        ("Çelik’s", "çelik’s"),  # only ASCII punctuation goes
        ("The", ""),
    ],
)
def test_what_is_left_of_an_answer(text, normalised):
    assert normalize_answer(text) == normalised


def test_case_articles_and_punctuation_do_not_matter():
    assert answer_exact_match("the BBC.", "BBC") == 1.0
    assert answer_exact_match("BBC News", "BBC") == 0.0


@pytest.mark.parametrize(
    ("answer", "gold", "f1"),
    [
        ("Barack Obama", "Obama", 2 * (1 / 2) * 1 / (1 / 2 + 1)),
        ("President Barack Obama", "Barack Hussein Obama", 2 / 3),  # 2 of 3 on both sides
        ("New York", "York, New", 1.0),  # the order does not matter
        ("Duran Duran", "Duran", 2 * (1 / 2) * 1 / (1 / 2 + 1)),  # it is in the gold answer only once
        ("Duran Duran", "Duran Duran Duran", 2 * 1 * (2 / 3) / (1 + 2 / 3)),
        ("Paris", "London", 0.0),
        ("the", "a", 0.0),
    ],
)
def test_f1_of_the_words(answer, gold, f1):
    assert answer_f1(answer, gold) == pytest.approx(f1)
    assert answer_f1(gold, answer) == pytest.approx(f1)
