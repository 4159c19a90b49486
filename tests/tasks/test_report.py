"""The report has the scores that the benchmark goes by, and no figure that says more than was measured."""

from dataclasses import replace

import pytest

from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.report import AVERAGE, score_table, size_scores, with_saved, write_report
from hf_elastic.tasks.task_result import OtherRows, SizeCost, TaskResult

COSTS = {"large": SizeCost(2_000_000, 1_500_000, 8_000_000, 4.0), "small": SizeCost(500_000, 300_000, 1_000_000, 1.5)}


def result_of(name, *by_split, benchmark="glue", seed=1, fold=None, robustness=(), **scores):
    """A result: of each split the score of the large size and of the small one, which all metrics of the task have."""
    task = find_task(benchmark, name)
    scores = scores or dict(zip(task.validation_splits, by_split, strict=False))

    def of_sizes(values):
        return {size: dict.fromkeys(task.metrics, value) for size, value in zip(COSTS, values, strict=True)}

    return TaskResult(
        benchmark,
        name,
        seed,
        {},
        {split: of_sizes(values) for split, values in scores.items()},
        COSTS,
        128,
        {"train": 30, **dict.fromkeys(scores, 10)},
        fold=fold,
        robustness={kind: of_sizes(values) for kind, values in dict(robustness).items()},
    )


def rows_of_task(results, name):
    return [row for row in size_scores(results) if row.task == name]


def means(results, name):
    return [row.mean for row in rows_of_task(results, name)]


def test_a_labelled_test_split_does_not_enter():
    mrpc = result_of("mrpc", validation=(0.8, 0.6), test=(0.2, 0.1))
    large, small = size_scores([mrpc])
    assert (large.mean, small.mean) == pytest.approx((80, 60))
    assert (large.kept, small.kept) == pytest.approx((100, 75))
    assert (large.spread, large.number, large.cost) == (None, 1, COSTS["large"])
    assert means([mrpc, result_of("rte", (0.6, 0.4))], AVERAGE) == pytest.approx([70, 50])


def test_without_validation_rows_the_labels_of_the_test_split_are_what_there_is():
    assert means([result_of("mrpc", test=(0.2, 0.1))], "mrpc") == pytest.approx([20, 10])
    assert not means([result_of("mrpc", test=(0.2, 0.1)), result_of("rte", (0.6, 0.4))], AVERAGE)


def test_a_task_is_the_mean_of_its_metrics_and_splits():
    assert means([result_of("mnli", (0.9, 0.7), (0.7, 0.4))], "mnli") == pytest.approx([80, 55])
    mrpc = result_of("mrpc", (0.0, 0.0))
    mrpc.scores["validation"]["large"].update(accuracy=0.7, f1=0.8)
    assert means([mrpc], "mrpc") == pytest.approx([75, 0])


def test_seeds_have_a_mean_and_a_spread():
    results = [result_of("rte", scores, seed=seed) for seed, scores in ((1, (0.8, 0.5)), (2, (0.6, 0.5)))]
    large, small = size_scores(results)
    assert (large.mean, large.spread, large.number) == pytest.approx((70, 14.1421356, 2))
    assert (small.mean, small.spread, small.kept) == pytest.approx((50, 0, 71.4285714))
    assert [row["score"] for row in score_table([large, small])] == ["70.0 ± 14.1", "50.0 ± 0.0"]


def test_diagnostics_have_rows_and_are_not_in_the_average():
    results = [
        result_of("rte", (0.8, 0.6), benchmark="super_glue"),
        result_of("cb", (0.6, 0.2), benchmark="super_glue"),
        result_of("axb", benchmark="super_glue", test=(0.1, 0.05)),
    ]
    assert means(results, "axb") == pytest.approx([10, 5])
    assert means(results, AVERAGE) == pytest.approx([70, 40])


@pytest.mark.parametrize(("largest", "kept"), [(0.01, 50), (0.0099, None), (0.0, None), (-0.4, None)])
def test_of_a_score_that_is_none_no_share_is_kept(largest, kept, tmp_path):
    result = result_of("cola", (largest, largest / 2))
    small = size_scores([result])[1]
    assert small.kept == (None if kept is None else pytest.approx(kept))
    assert score_table([small])[0]["kept"] == ("–" if kept is None else "50.0%")
    write_report([result], tmp_path)
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_robustness_is_the_mean_share_of_the_clean_score_of_each_size():
    result = result_of("rte", (0.8, 0.5), robustness={"typos": (0.4, 0.5), "case": (0.8, 0.4)})
    large, small = size_scores([result])
    assert (large.robust, small.robust) == pytest.approx((75, 90))
    assert [row["robust"] for row in score_table([large, small])] == ["75.0%", "90.0%"]
    unmeasured = size_scores([result_of("rte", (0.8, 0.5))])
    assert unmeasured[0].robust is None and "robust" not in score_table(unmeasured)[0]
    both = [result, result_of("cola", (0.5, 0.005), robustness={"typos": (0.25, 0.2)})]
    assert [row["robust"] for row in score_table(size_scores(both))] == ["75.0%", "90.0%", "50.0%", "–", "–", "–"]


def test_scores_elsewhere_are_shares_of_the_own_score():
    elsewhere = {"news": OtherRows("hash", 3, {"large": {"accuracy": 0.4}, "small": {"accuracy": 0.5}})}
    result = replace(result_of("rte", (0.8, 0.5)), out_of_domain=elsewhere)
    large, small = size_scores([result])
    assert (large.elsewhere, small.elsewhere, small.robust) == (pytest.approx(50), pytest.approx(100), None)
    assert [row["elsewhere"] for row in score_table([large, small])] == ["50.0%", "100.0%"]


def test_robustness_goes_by_the_split_that_was_perturbed():
    result = result_of("mnli", (0.8, 0.8), (0.4, 0.4), robustness={"typos": (0.4, 0.6)})
    assert [row.robust for row in size_scores([result])] == pytest.approx([50, 75])


def test_the_average_has_a_spread_over_seeds_with_the_same_tasks():
    results = [
        result_of(name, scores, seed=seed)
        for seed, by_task in (
            (1, {"rte": (0.8, 0.6), "cola": (0.4, 0.2)}),
            (2, {"cola": (0.2, 0.0), "rte": (0.6, 0.4)}),
        )
        for name, scores in by_task.items()
    ]
    large, small = rows_of_task(results, AVERAGE)
    assert (large.mean, large.spread, large.number) == pytest.approx((50, 14.1421356, 2))
    assert (small.mean, small.kept, small.robust, small.cost) == (pytest.approx(30), pytest.approx(60), None, None)
    assert score_table([small])[0] == {
        **{"task": "average", "size": "small", "score": "30.0 ± 14.1", "kept": "60.0%"},
        **dict.fromkeys(("parameters", "encoder", "FLOPs", "ms"), "–"),
    }


@pytest.mark.parametrize(
    "results",
    [
        [result_of("rte", (0.8, 0.6))],
        [result_of("rte", (0.8, 0.6)), result_of("rte", (0.7, 0.6), seed=2)],
        [result_of("rte", (0.8, 0.6)), result_of("cola", (0.8, 0.6), seed=2)],
        [result_of("rte", (0.8, 0.6)), result_of("cola", (0.8, 0.6)), result_of("rte", (0.8, 0.6), seed=2)],
        [result_of("rte", (0.8, 0.6)), result_of("mnli", (0.8, 0.6))],
        [result_of(name, (0.8, 0.6), benchmark="super_glue") for name in ("wsc", "wsc.fixed")],
    ],
    ids=["one task", "one task of two seeds", "different tasks", "a task less", "half of a task", "one task twice"],
)
def test_there_is_no_average_of_different_things_or_of_one(results):
    assert not means(results, AVERAGE)


def test_another_form_of_a_task_stands_for_it():
    results = [
        result_of(name, scores, benchmark="super_glue", seed=seed)
        for seed, name, scores in ((1, "wsc", (0.6, 0.5)), (2, "wsc.fixed", (0.8, 0.5)))
    ]
    results += [result_of("cb", (0.4, 0.3), benchmark="super_glue", seed=seed) for seed in (1, 2)]
    assert means(results, AVERAGE) == pytest.approx([55, 40])


def test_a_fold_stands_for_all_splits_of_its_task():
    results = [
        result_of(name, fold=fold, **{split: (score, score)})
        for fold, score in ((0, 0.6), (1, 0.8))
        for name, split in (("mnli", "validation_matched"), ("rte", "validation"))
    ]
    large = rows_of_task(results, AVERAGE)[0]
    assert (large.mean, large.number) == (pytest.approx(70), 2)


def test_the_report_says_what_the_average_lacks(tmp_path):
    results = [result_of("rte", (0.8, 0.6)), result_of("cola", (0.4, 0.2)), result_of("ax")]
    rows = write_report(results, tmp_path)
    assert rows == size_scores(results)
    lines = (tmp_path / "report.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# glue by size"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert cells[0] == ["task", "size", "score", "kept", "parameters", "encoder", "FLOPs", "ms"]
    assert cells[3] == ["rte", "small", "60.0", "75.0%", "500 k", "300 k", "1.00 M", "1.5"]
    assert [row[0] for row in cells[2:]] == ["rte", "rte", "cola", "cola", "average", "average"]
    assert lines[-4:] == [
        "- rte: rows train 30, validation 10; FLOPs and ms are of 128 tokens.",
        "- cola: rows train 30, validation 10; FLOPs and ms are of 128 tokens.",
        "- ax: rows train 30; FLOPs and ms are of 128 tokens.",
        "- average: of rte, cola; sst2, mrpc, stsb, qqp, mnli, qnli, wnli missing, so it is not the benchmark's.",
    ]
    assert (tmp_path / "report.png").stat().st_size > 10_000


def test_predictions_alone_are_no_report(tmp_path):
    with pytest.raises(ValueError, match="None of the results has scores"):
        write_report([result_of("ax")], tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_report_has_what_earlier_runs_left(tmp_path):
    results = {
        seed: replace(result_of("rte", (0.8, 0.6), seed=seed), request=request_of_seed(seed)) for seed in (1, 2)
    }
    other = replace(result_of("rte", (0.8, 0.6), seed=3), request={"settings": {"seed": 3, "learning_rate": 1.0}})
    for result in (
        results[1],
        other,
        result_of("cola", (0.5, 0.4)),
        result_of("cb", (0.5, 0.4), benchmark="super_glue"),
    ):
        result.save(tmp_path / result.task / f"seed-{result.seed}")
    found = with_saved([results[2]], tmp_path)
    assert [(result.task, result.seed) for result in found] == [("cola", 1), ("rte", 1), ("rte", 2)]
    assert found[2] is results[2]


def request_of_seed(seed):
    return {"settings": {"seed": seed, "learning_rate": 0.1}, "data": {"train": f"hash {seed}"}}
