"""Comparing answers to ReCoRD's questions: what counts is the words, not their case, articles or punctuation.

Zhang et al. 2018, ReCoRD: Bridging the Gap between Human and Machine Commonsense Reading Comprehension,
https://arxiv.org/abs/1810.12885, after the definitions of SQuAD: Rajpurkar et al. 2016,
https://arxiv.org/abs/1606.05250
"""

import re
import string
from collections import Counter

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Takes away what two ways to write an answer may differ in.

    Args:
        text: The answer.

    Returns:
        It in lower case, without ASCII punctuation and English articles, with single spaces between its words.
    """
    # Punctuation goes first: "a." is an article then, and "U.S." is one word.
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def answer_exact_match(answer: str, gold: str) -> float:
    """1.0 if the normalised answers are the same, else 0.0."""
    return float(normalize_answer(answer) == normalize_answer(gold))


def answer_f1(answer: str, gold: str) -> float:
    """Harmonic mean of precision and recall of the answer's words, where a word counts as often as both have it.

    Args:
        answer: What was answered.
        gold: A right answer.

    Returns:
        F1, in 0..1. It is 0.0 without a common word, also where nothing is left of either answer.
    """
    words, gold_words = normalize_answer(answer).split(), normalize_answer(gold).split()
    common = (Counter(words) & Counter(gold_words)).total()
    return 2 * common / (len(words) + len(gold_words)) if common else 0.0
