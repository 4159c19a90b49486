"""What several seeds score together, and how a report shows it beside their mean."""

import statistics
from dataclasses import replace

import pytest

from hf_elastic.tasks.averages import mean_score
from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.ensemble import find_members, join
from hf_elastic.tasks.report import AVERAGE, score_table, size_scores, write_report
from hf_elastic.tasks.seed_ensembles import seed_ensembles

from .saved_runs import save_run

SEEDS = (1, 2, 3)


@pytest.mark.parametrize(("benchmark", "name"), [("glue", "mnli"), ("glue", "stsb"), ("super_glue", "axg")])
def test_the_seeds_of_each_size_answer_together(tmp_path, benchmark, name):
    results = save_run(tmp_path, benchmark, name, SEEDS)
    (together,) = seed_ensembles(results, tmp_path)
    for size in ("large", "small"):
        expected = join(find_members(name, f"{tmp_path}:{size}")).scores
        assert {split: of[size] for split, of in together.scores.items()} == expected
        assert together.costs[size].flops == 3 * results[0].costs[size].flops
        assert together.costs[size].milliseconds == 3 * results[0].costs[size].milliseconds


def test_a_report_has_a_row_for_the_seeds_together(tmp_path):
    results = [of for name in ("mnli", "mrpc") for of in save_run(tmp_path, "glue", name, SEEDS)]
    rows = write_report(results, tmp_path)
    together = {of.task: of for of in seed_ensembles(results, tmp_path)}
    assert [(row.task, row.size) for row in rows] == [
        (task, f"{size}{ensemble}")
        for task in ("mnli", "mrpc", AVERAGE)
        for size in ("large", "small")
        for ensemble in ("", ", ensemble of 3 seeds")
    ]
    by_size = {(row.task, row.size): row for row in rows}
    means = []
    for name in ("mnli", "mrpc"):
        of_splits = [mean_score(find_task("glue", name), of["small"]) for of in together[name].scores.values()]
        means.append(100 * statistics.mean(of_splits))
        row, single = by_size[name, "small, ensemble of 3 seeds"], by_size[name, "small"]
        assert row.mean == pytest.approx(means[-1]) and row.spread is None and single.spread is not None
        assert row.kept == pytest.approx(100 * means[-1] / by_size[name, "large"].mean)
        assert row.cost.parameters == 3 * single.cost.parameters
    assert by_size[AVERAGE, "small, ensemble of 3 seeds"].mean == pytest.approx(statistics.mean(means))
    report = (tmp_path / "report.md").read_text()
    assert "| mnli | small, ensemble of 3 seeds | " in report and (tmp_path / "report.png").stat().st_size > 10_000
    cells = score_table(rows)[1]
    assert (cells["size"], cells["score"]) == ("large, ensemble of 3 seeds", f"{rows[1].mean:.1f}")


def test_what_has_no_ensemble(tmp_path):
    (alone,) = save_run(tmp_path, "glue", "cola")
    assert seed_ensembles([alone], tmp_path) == []
    folds = [replace(alone, fold=0), replace(alone, fold=1)]
    assert seed_ensembles(folds, tmp_path) == []
    hidden = save_run(tmp_path, "glue", "ax", SEEDS)
    assert seed_ensembles(hidden, tmp_path) == []
    held_out = save_run(tmp_path, "glue", "rte", (1, 2))
    held_out[1] = replace(held_out[1], request={"data": {"validation": "rows that the other seed drew"}})
    assert seed_ensembles(held_out, tmp_path) == []
    assert seed_ensembles(save_run(tmp_path / "one", "glue", "rte", (1, 2)), tmp_path / "elsewhere") == []


def test_the_average_is_only_of_ensembles_of_all_tasks(tmp_path):
    results = [of for name in ("cola", "rte") for of in save_run(tmp_path, "glue", name, SEEDS)]
    rows = size_scores(results, seed_ensembles(results[:3], tmp_path))
    assert [row.task for row in rows if row.is_ensemble] == ["cola", "cola"]
