"""What a run left on disk becomes a zip for each size and seed, with nothing in it that the run did not predict."""

import zipfile

import pytest

from hf_elastic.tasks.benchmark_training import training_folder
from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.run_submission import submit
from hf_elastic.tasks.submission import prediction_lines
from hf_elastic.tasks.task_result import SizeCost, TaskResult

from .benchmark_rows import splits_of
from .test_predictions import predictions_of

COSTS = {"large": SizeCost(1000, 800, 4000, 2.0), "small": SizeCost(500, 300, 1000, 1.0)}


def leave(folder, benchmark, name, splits=None, seed=1, fold=None, draw=0):
    """Leaves random predictions for all splits, and gives a result that has those that are said."""
    task = find_task(benchmark, name)
    for split in splits_of(benchmark, name):
        for number, size in enumerate(COSTS):
            predictions = predictions_of(benchmark, name, split, draw + 10 * seed + number)
            predictions.save(training_folder(folder, name, seed, fold) / "predictions" / split / f"{size}.npz")
    rows = dict.fromkeys(splits or task.splits, 4)
    return TaskResult(benchmark, name, seed, {}, {}, COSTS, 64, rows, fold=fold)


def files_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode().splitlines() for name in archive.namelist()}


def lines_of(benchmark, name, split, draw):
    predictions = predictions_of(benchmark, name, split, draw)
    return prediction_lines(find_task(benchmark, name), split, predictions.rows, predictions.answers)


def test_each_size_and_seed_has_a_zip_with_its_own_answers(tmp_path):
    results = [leave(tmp_path, "glue", name, seed=seed) for name in ("mnli", "ax", "stsb") for seed in (1, 2)]
    paths = submit("glue", results, tmp_path, tmp_path / "zips")
    assert [path.name for path in paths] == [f"glue-{size}-seed-{seed}.zip" for seed in (1, 2) for size in COSTS]
    for path, draw in zip(paths, (10, 11, 20, 21), strict=True):
        assert files_of(path) == {
            "MNLI-m.tsv": lines_of("glue", "mnli", "test_matched", draw),
            "MNLI-mm.tsv": lines_of("glue", "mnli", "test_mismatched", draw),
            "AX.tsv": lines_of("glue", "ax", "test", draw),
            "STS-B.tsv": lines_of("glue", "stsb", "test", draw),
        }
    assert len({path.read_bytes() for path in paths}) == 4


@pytest.mark.parametrize("names", [("wsc", "wsc.fixed"), ("wsc.fixed", "wsc"), ("wsc.fixed",)])
def test_of_two_forms_of_a_task_the_original_is_handed_in(tmp_path, names):
    draws = {"wsc": 0, "wsc.fixed": 50}
    results = [leave(tmp_path, "super_glue", name, draw=draws[name]) for name in names]
    path = submit("super_glue", results, tmp_path, tmp_path)[0]
    submitted = "wsc" if "wsc" in names else "wsc.fixed"
    lines = {name: lines_of("super_glue", name, "test", 10 + draw) for name, draw in draws.items()}
    assert lines["wsc"] != lines["wsc.fixed"]
    assert files_of(path) == {"WSC.jsonl": lines[submitted]}


def test_predictions_that_the_result_does_not_have_are_not_handed_in(tmp_path):
    results = [
        leave(tmp_path, "glue", "rte", splits=("train", "validation")),
        leave(tmp_path, "glue", "mnli", splits=("train", "validation_matched", "test_matched")),
    ]
    assert list(files_of(submit("glue", results, tmp_path, tmp_path)[0])) == ["MNLI-m.tsv"]
    with pytest.raises(ValueError, match="No test split of rte was there to predict"):
        submit("glue", results[:1], tmp_path, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_folds_are_not_handed_in(tmp_path):
    results = [leave(tmp_path, "glue", "rte", fold=0), leave(tmp_path, "glue", "cola")]
    assert list(files_of(submit("glue", results, tmp_path, tmp_path)[0])) == ["CoLA.tsv"]
    assert submit("glue", results[:1], tmp_path, tmp_path / "other") == []


def test_tasks_may_be_missing_unless_all_are_wanted(tmp_path, caplog):
    result = leave(tmp_path, "glue", "rte")
    with pytest.raises(ValueError, match="no predictions for CoLA.tsv.*partial=True"):
        submit("glue", [result], tmp_path, tmp_path / "zips", partial=False)
    assert not (tmp_path / "zips").exists()
    submit("glue", [result], tmp_path, tmp_path / "zips")
    assert "no predictions for CoLA.tsv" in caplog.text
