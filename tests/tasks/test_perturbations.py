"""Perturbed texts are near to the originals, always the same, and leave marked words alone."""

from collections import Counter

import pytest

from hf_elastic.tasks.benchmarks import BENCHMARKS
from hf_elastic.tasks.input_formats import Example, Span
from hf_elastic.tasks.perturbations import PERTURBATIONS, PerturbedFormat, perturb

from .benchmark_rows import rows_of

TEXT = "The quick brown fox jumps over the lazy sleeping dog,\n while nobody watches them both."


def perturbed(kind, text=TEXT, seed=0):
    return perturb(Example((text,)), kind, seed).texts[0]


def test_letters_change_places_within_words():
    result = perturbed("typos")
    assert result != TEXT and len(result) == len(TEXT)
    changed = [(a, b) for a, b in zip(TEXT.split(), result.split(), strict=True) if a != b]
    assert 1 <= len(changed) <= 2
    for before, after in changed:
        assert Counter(before) == Counter(after) and before[0] == after[0] and before[-1] == after[-1]


def test_case_changes_and_nothing_else():
    results = {perturbed("case", seed=seed) for seed in range(8)}
    assert results == {TEXT.upper(), TEXT.lower()}


def test_words_change_places():
    result = perturbed("order")
    assert result.split() != TEXT.split() and Counter(result.split()) == Counter(TEXT.split())
    assert perturbed("order", "one") == "one"


@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_a_text_always_gets_the_same_changes(kind):
    alone, pair = perturb(Example((TEXT,)), kind), perturb(Example(("Another text before it", TEXT)), kind)
    assert alone.texts[0] == pair.texts[1]
    assert any(perturbed(kind, seed=seed) != alone.texts[0] for seed in range(1, 6))
    assert perturbed(kind, "") == "" and perturbed(kind, " \n") == " \n"


@pytest.mark.parametrize("kind", PERTURBATIONS)
@pytest.mark.parametrize("inner", [False, True])
def test_spans_stay_and_are_found_again(kind, inner):
    start = TEXT.index("brown fox")
    spans = [Span(0, start, start + 9), Span(0, TEXT.index("nobody"), TEXT.index("nobody") + 6)]
    if inner:
        spans.append(Span(0, start + 6, start + 9))
    for seed in range(5):
        result = perturb(Example((TEXT,), 1, tuple(spans)), kind, seed)
        assert [result.texts[0][s.start : s.end] for s in result.spans] == [TEXT[s.start : s.end] for s in spans]
        assert result.label == 1


@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_what_lies_between_spans_stays_and_what_lies_around_them_does_not(kind):
    start, end = TEXT.index("fox"), TEXT.index("dog,")
    spans = (Span(0, start, start + 3), Span(0, end, end + 3))
    results = [perturb(Example((TEXT,), None, spans), kind, seed) for seed in range(8)]
    for result in results:
        first, last = result.spans
        assert result.texts[0][first.start : last.end] == TEXT[start : end + 3]
    assert any(result.texts[0][: result.spans[0].start] != TEXT[:start] for result in results)
    assert any(result.texts[0][result.spans[1].end :] != TEXT[end + 3 :] for result in results)


@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_every_format_can_be_perturbed(kind):
    for benchmark, tasks in BENCHMARKS.items():
        for name, task in tasks.items():
            split = "train" if task.train_split else "test"
            format_ = PerturbedFormat(task.input_format, kind)
            assert format_.head == task.input_format.head and format_.markers == task.input_format.markers
            for row in rows_of(benchmark, name, split):
                plain, changed = task.input_format.examples(row), format_.examples(row)
                assert [e.label for e in plain] == [e.label for e in changed]
                for before, after in zip(plain, changed, strict=True):
                    for a, b in zip(before.spans, after.spans, strict=True):
                        assert before.texts[a.text][a.start : a.end] == after.texts[b.text][b.start : b.end]
