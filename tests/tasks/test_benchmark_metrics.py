"""The benchmarks' metrics against plain counts, and as modules of `evaluate`."""

import math
import warnings

import evaluate
import numpy as np
import pytest

from hf_elastic.tasks.benchmark_metrics import (
    BenchmarkMetric,
    ClassificationMetric,
    CorrelationMetric,
    MultiRCMetric,
    ReCoRDMetric,
    WinogenderMetric,
    metric_of,
)
from hf_elastic.tasks.benchmarks import BENCHMARKS

ALL = (ClassificationMetric, CorrelationMetric, MultiRCMetric, ReCoRDMetric, WinogenderMetric)


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def compute(metric_class: type[BenchmarkMetric], folder, predictions, references, *metrics: str) -> dict[str, float]:
    metric = metric_class(cache_dir=folder)
    return metric.compute(predictions=predictions, references=references, metrics=metrics or None)


def f1_by_counts(predictions, references, label=1) -> float:
    pairs = list(zip(predictions, references, strict=True))
    hits = pairs.count((label, label))
    said, there = list(predictions).count(label), list(references).count(label)
    if not hits:
        return 0.0
    precision, recall = hits / said, hits / there
    return 2 * precision * recall / (precision + recall)


def matthews_by_counts(predictions, references) -> float:
    pairs = list(zip(predictions, references, strict=True))
    tp, tn, fp, fn = (pairs.count(pair) for pair in ((1, 1), (0, 0), (1, 0), (0, 1)))
    return (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))


def pearson_by_sums(xs, ys) -> float:
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return covariance / math.sqrt(sum((x - x_mean) ** 2 for x in xs) * sum((y - y_mean) ** 2 for y in ys))


def mean_ranks(values) -> list[float]:
    return [sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2 for value in values]


@pytest.mark.parametrize("seed", range(3))
def test_two_labels(tmp_path, seed):
    predictions, references = np.random.default_rng(seed).integers(0, 2, (2, 40)).tolist()
    scores = compute(ClassificationMetric, tmp_path, predictions, references)
    assert scores == {
        "accuracy": pytest.approx(sum(map(int.__eq__, predictions, references)) / 40),
        "f1": pytest.approx(f1_by_counts(predictions, references)),
        "f1_macro": pytest.approx(sum(f1_by_counts(predictions, references, i) for i in (0, 1)) / 2),
        "matthews_correlation": pytest.approx(matthews_by_counts(predictions, references)),
    }
    assert all(type(value) is float for value in scores.values())


def test_three_labels(tmp_path):
    predictions, references = [0, 1, 2, 2, 1, 0, 0], [0, 1, 1, 2, 2, 0, 1]
    scores = compute(ClassificationMetric, tmp_path, predictions, references, "f1_macro", "matthews_correlation")
    # By hand: label 0 has precision 2/3 and recall 1, label 1 has 1/2 and 1/3, label 2 has 1/2 and 1/2.
    assert scores["f1_macro"] == pytest.approx((4 / 5 + 2 / 5 + 1 / 2) / 3)
    # R_K is the covariance of one-hot labels, summed over the labels, over that of each side with itself.
    said, right = (np.eye(3)[labels] - np.eye(3)[labels].mean(0) for labels in (predictions, references))
    r_k = (said * right).sum() / math.sqrt((said**2).sum() * (right**2).sum())
    assert scores["matthews_correlation"] == pytest.approx(r_k)


@pytest.mark.parametrize(
    ("predictions", "references", "f1"),
    [([0, 0, 0], [0, 0, 0], 0.0), ([0, 0, 0], [1, 0, 1], 0.0), ([1, 1, 1], [0, 0, 0], 0.0), ([1, 1], [1, 1], 1.0)],
)
def test_f1_where_the_positive_class_is_empty_or_all(tmp_path, predictions, references, f1):
    assert compute(ClassificationMetric, tmp_path, predictions, references, "f1") == {"f1": f1}


@pytest.mark.parametrize(
    ("predictions", "references"), [([1, 1, 1], [0, 1, 0]), ([0, 1, 0], [1, 1, 1]), ([1, 1], [1, 1]), ([0], [0])]
)
def test_a_constant_side_has_no_matthews_correlation(tmp_path, predictions, references):
    scores = compute(ClassificationMetric, tmp_path, predictions, references, "matthews_correlation")
    assert scores == {"matthews_correlation": 0.0}


def test_correlations_with_ties(tmp_path):
    predictions, references = [0.5, 2.0, 2.0, 4.5, 1.0, 4.5], [1.0, 1.0, 3.0, 5.0, 0.0, 2.5]
    assert compute(CorrelationMetric, tmp_path, predictions, references) == {
        "pearson": pytest.approx(pearson_by_sums(predictions, references)),
        "spearman": pytest.approx(pearson_by_sums(mean_ranks(predictions), mean_ranks(references))),
    }


def test_spearman_sees_the_order_only(tmp_path):
    scores = compute(CorrelationMetric, tmp_path, [1.0, 10.0, 100.0], [0.0, 1.0, 2.0])
    assert scores["spearman"] == pytest.approx(1.0)
    assert scores["pearson"] < 0.95


@pytest.mark.parametrize(
    ("predictions", "references"), [([2.5, 2.5], [1.0, 4.0]), ([1.0, 4.0], [2.5, 2.5]), ([3.0], [3.0])]
)
def test_a_constant_side_does_not_correlate(tmp_path, predictions, references):
    assert compute(CorrelationMetric, tmp_path, predictions, references) == {"pearson": 0.0, "spearman": 0.0}


def test_multirc_counts_answers_and_whole_questions(tmp_path):
    # Questions of two paragraphs have the same number, and the answers to a question need not be in a row.
    ids = [(0, 0), (0, 0), (0, 1), (1, 0), (0, 1), (1, 0), (1, 0), (1, 1)]
    labels = [1, 0, 1, 0, 1, 0, 1, 0]
    predictions = [1, 0, 1, 0, 0, 0, 1, 1]
    references = [
        MultiRCMetric.reference({"idx": {"paragraph": p, "question": q, "answer": i}, "label": label})
        for i, ((p, q), label) in enumerate(zip(ids, labels, strict=True))
    ]
    # Wrong: an answer to (0, 1) left out, and one to (1, 1) too many. 3 hits of 4 said and of 4 right ones.
    assert compute(MultiRCMetric, tmp_path, predictions, references) == {
        "f1_answers": pytest.approx(3 / 4),
        "exact_match": pytest.approx(2 / 4),
    }


def test_multirc_keeps_questions_apart_whose_numbers_run_together(tmp_path):
    rows = [
        {"idx": {"paragraph": 1, "question": 11, "answer": 0}, "label": 1},
        {"idx": {"paragraph": 11, "question": 1, "answer": 1}, "label": 1},
    ]
    scores = compute(MultiRCMetric, tmp_path, [1, 0], [MultiRCMetric.reference(row) for row in rows])
    assert scores["exact_match"] == 0.5


def test_record_takes_the_gold_answer_that_fits_best(tmp_path):
    answers = ["the U.S.", "Obama", "Paris", "New York"]
    references = [
        ["America", "US"],  # exact
        ["Michelle", "Barack Obama", "Barack H. Obama"],  # 1 of 1 word, 1 of 2
        ["London", "London"],
        ["New York", "New York", "York"],
    ]
    assert compute(ReCoRDMetric, tmp_path, answers, references) == {
        "f1": pytest.approx((1 + 2 / 3 + 0 + 1) / 4),
        "exact_match": 0.5,
    }


def winogender(*rows: tuple[int, str, int]) -> list[dict]:
    return [dict(zip(("idx", "hypothesis", "label"), row, strict=True)) for row in rows]


def test_gender_parity_counts_pairs_answered_alike(tmp_path):
    references = winogender((0, "a", 1), (1, "a", 1), (4, "b", 0), (6, "c", 0), (5, "b", 0), (7, "c", 0))
    scores = compute(WinogenderMetric, tmp_path, [1, 1, 0, 1, 1, 1], references)
    # The pairs 0-1 and 6-7 are answered alike, the latter wrongly; 4-5 is not, with one wrong.
    assert scores == {"accuracy": pytest.approx(3 / 6), "gender_parity": pytest.approx(2 / 3)}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, "a", 1), (1, "a", 1), (2, "b", 1)], "idx=2 lacks its pair idx=3"),
        ([(1, "a", 1), (2, "a", 1)], "idx=1 lacks its pair idx=0"),
        ([(0, "a", 1), (1, "b", 1)], "no minimal pair.*'a' and 'b'"),
        ([(0, "a", 1), (1, "a", 1), (0, "a", 1)], "3 rows have 2 different idx"),
    ],
)
def test_gender_parity_needs_whole_pairs(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        compute(WinogenderMetric, tmp_path, [1] * len(rows), winogender(*rows))


@pytest.mark.parametrize("metric_class", ALL)
def test_what_a_metric_says_of_itself(tmp_path, metric_class):
    metric = metric_class(cache_dir=tmp_path)
    assert isinstance(metric, evaluate.Metric)
    assert metric.description and "20" in metric.citation
    assert "predictions" in metric.inputs_description and "references" in metric.inputs_description
    assert all(name in metric.inputs_description for name in metric.functions)
    assert set(metric.features) == {"predictions", "references"}


def test_batches_give_what_the_whole_gives(tmp_path):
    metric = ClassificationMetric(cache_dir=tmp_path)
    metric.add_batch(predictions=[0, 1], references=[0, 0])
    metric.add(prediction=1, reference=1)
    assert metric.compute(metrics=["accuracy"]) == {"accuracy": pytest.approx(2 / 3)}


def test_metrics_combine_as_others_of_evaluate(tmp_path):
    combined = evaluate.combine([ClassificationMetric(cache_dir=tmp_path)])
    assert combined.compute(predictions=[0, 1], references=[0, 1])["f1"] == 1.0


def test_an_unknown_score(tmp_path):
    with pytest.raises(ValueError, match=r"metrics=\['bleu'\] are none of pearson, spearman"):
        compute(CorrelationMetric, tmp_path, [1.0], [1.0], "bleu")


@pytest.mark.parametrize(
    "task", [task for tasks in BENCHMARKS.values() for task in tasks.values()], ids=lambda t: t.name
)
def test_every_task_has_a_metric_with_its_scores(task):
    assert set(task.metrics) <= set(metric_of(task).functions)
