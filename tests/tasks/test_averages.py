"""Averages of the benchmarks, against the published definitions by hand."""

import pytest

from hf_elastic.tasks.averages import BenchmarkAverage, benchmark_average, mean_score
from hf_elastic.tasks.benchmarks import find_task

GLUE = {
    "cola": {"validation": {"matthews_correlation": 0.5}},
    "sst2": {"validation": {"accuracy": 0.9}},
    "mrpc": {"validation": {"accuracy": 0.8, "f1": 0.9}},
    "stsb": {"validation": {"pearson": 0.9, "spearman": 0.8}},
    "qqp": {"validation": {"accuracy": 0.9, "f1": 0.8}},
    "mnli": {"validation_matched": {"accuracy": 0.8}, "validation_mismatched": {"accuracy": 0.9}},
    "qnli": {"validation": {"accuracy": 0.9}},
    "rte": {"validation": {"accuracy": 0.7}},
    "wnli": {"validation": {"accuracy": 0.6}},
}
SUPER_GLUE = {
    "boolq": {"validation": {"accuracy": 0.8}},
    "cb": {"validation": {"accuracy": 0.9, "f1_macro": 0.7}},
    "copa": {"validation": {"accuracy": 0.7}},
    "multirc": {"validation": {"f1_answers": 0.7, "exact_match": 0.3}},
    "record": {"validation": {"f1": 0.7, "exact_match": 0.6}},
    "rte": {"validation": {"accuracy": 0.7}},
    "wic": {"validation": {"accuracy": 0.7}},
    "wsc": {"validation": {"accuracy": 0.6}},
}
DIAGNOSTIC = {"test": {"matthews_correlation": -1.0, "accuracy": 0.0, "gender_parity": 0.0}}


def test_metrics_of_a_task_weigh_the_same():
    assert mean_score(find_task("super_glue", "multirc"), {"f1_answers": 0.7, "exact_match": 0.2}) == pytest.approx(
        0.45
    )


def test_other_figures_are_not_in_the_mean():
    assert mean_score(find_task("glue", "cola"), {"matthews_correlation": 0.5, "accuracy": 0.9, "loss": 3.0}) == 0.5


def test_a_metric_that_is_not_there():
    with pytest.raises(ValueError, match="The scores of mrpc, accuracy, lack f1"):
        mean_score(find_task("glue", "mrpc"), {"accuracy": 0.8})


def test_glue_is_the_mean_of_nine_tasks():
    average = benchmark_average("glue", GLUE)
    assert average.value == pytest.approx((0.5 + 0.9 + 0.85 + 0.85 + 0.85 + 0.85 + 0.9 + 0.7 + 0.6) / 9)
    assert (average.tasks, average.missing, average.complete) == (tuple(GLUE), (), True)


def test_super_glue_is_the_mean_of_eight_tasks():
    average = benchmark_average("super_glue", SUPER_GLUE)
    assert average.value == pytest.approx((0.8 + 0.8 + 0.7 + 0.5 + 0.65 + 0.7 + 0.7 + 0.6) / 8)
    assert (average.tasks, average.missing, average.complete) == (tuple(SUPER_GLUE), (), True)


def test_diagnostics_are_not_in_it():
    assert benchmark_average("glue", {"ax": DIAGNOSTIC, **GLUE}) == benchmark_average("glue", GLUE)
    with_diagnostics = {"axb": DIAGNOSTIC, **SUPER_GLUE, "axg": DIAGNOSTIC}
    assert benchmark_average("super_glue", with_diagnostics) == benchmark_average("super_glue", SUPER_GLUE)


def test_either_form_of_wsc_counts_once():
    fixed = {"wsc.fixed" if name == "wsc" else name: scores for name, scores in SUPER_GLUE.items()}
    average = benchmark_average("super_glue", fixed)
    assert average.value == pytest.approx(benchmark_average("super_glue", SUPER_GLUE).value)
    assert average.complete and "wsc.fixed" in average.tasks
    both = {"wsc.fixed": {"validation": {"accuracy": 0.0}}, **SUPER_GLUE}
    assert benchmark_average("super_glue", both) == benchmark_average("super_glue", SUPER_GLUE)


def test_a_part_of_a_benchmark_says_so():
    average = benchmark_average("glue", {name: GLUE[name] for name in ("rte", "cola")})
    missing = ("sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "wnli")
    assert average == BenchmarkAverage(pytest.approx(0.6), ("rte", "cola"), missing)
    assert not average.complete


def test_half_of_mnli_is_not_mnli():
    matched = {"validation_matched": {"accuracy": 0.8}}
    average = benchmark_average("glue", {**GLUE, "mnli": matched})
    assert average.missing == ("mnli",)
    assert average.value == pytest.approx((0.5 + 0.9 + 0.85 + 0.85 + 0.85 + 0.9 + 0.7 + 0.6) / 8)


@pytest.mark.parametrize(
    ("benchmark", "scores", "message"),
    [
        ("glue", {}, "No task of glue"),
        ("glue", {"ax": DIAGNOSTIC}, "No task of glue"),
        ("glue", {"mnli": {}}, "No task of glue"),
        ("glue", {"boolq": SUPER_GLUE["boolq"]}, "'boolq' is a task of super_glue"),
        ("superglue", SUPER_GLUE, "'superglue' is none of 'glue', 'super_glue'"),
        ("glue", {"rte": {"train": {"accuracy": 1.0}}}, "takes validation of rte, not train"),
        ("glue", {"rte": {"validation": {"loss": 1.0}}}, "lack accuracy"),
    ],
)
def test_what_cannot_be_averaged(benchmark, scores, message):
    with pytest.raises(ValueError, match=message):
        benchmark_average(benchmark, scores)
