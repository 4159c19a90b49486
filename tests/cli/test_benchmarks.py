"""The benchmarks on the command line: tasks of a few rows on a tiny checkpoint, from training to ensembles."""

import json
import sys
import zipfile

import datasets
import pytest
from typer.testing import CliRunner

import hf_elastic
from hf_elastic.checkpoints import load_elastic
from hf_elastic.cli import app, main
from hf_elastic.cli.display import console
from hf_elastic.tasks.predictions import Predictions
from hf_elastic.tasks.task_result import TaskResult
from tests.tasks.benchmark_rows import write_task

SIZES = ["--subnet", "whole=", "--subnet", "half=width:0.5,depth:0.5"]
SHORT = ["--max-length", 32, "--batch-size", 4, "--finetune-epochs", 0, "--cotrain-epochs", 1, "--rank-examples", 4]
SETTINGS = [*SIZES, *SHORT, "--learning-rate", "1e-3"]


@pytest.fixture(autouse=True, scope="module")
def surroundings(tmp_path_factory):
    """Room for whole table cells, and a cache that is not the user's."""
    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(console, "width", 200)
        changes.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets-cache"))
        yield


def run(*arguments):
    """Runs a command and gives what it printed."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def fail(capsys, *arguments):
    """Runs a command that has to fail; gives its exit status and what it wrote to stderr, in one line."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code, " ".join(capsys.readouterr().err.replace("│", " ").split())


def cells(output, *first):
    """The words of the line of a table that begins with these."""
    rows = [line.split() for line in output.splitlines()]
    return next(row for row in rows if row[: len(first)] == list(first))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A folder with the rows of some tasks."""
    folder = tmp_path_factory.mktemp("rows")
    for benchmark, name in [("glue", "mnli"), ("glue", "ax"), ("glue", "rte"), ("super_glue", "cb")]:
        write_task(folder, benchmark, name)
    return folder


@pytest.fixture(scope="module")
def runs(checkpoint, rows, tmp_path_factory):
    """A folder with two seeds of RTE, and what the command printed."""
    folder = tmp_path_factory.mktemp("runs")
    seeds = ["--seed", 1, "--seed", 2]
    command = ["glue", "--task", "rte", "--model", checkpoint, "--data-dir", rows, "-o", folder, *SETTINGS, *seeds]
    return folder, command, run(*command, "--submission", folder / "zips")


def test_a_task_is_trained_scored_reported_and_handed_in(runs):
    folder, _, output = runs
    assert "rte/seed-1" in output and "rte/seed-2" in output and "Train all sizes together" in output
    assert "±" in cells(output, "rte", "half") and "±" not in cells(output, "rte", "half,", "ensemble", "of", "2")
    report = (folder / "report.md").read_text()
    assert "| rte | half, ensemble of 2 seeds |" in report and (folder / "report.png").is_file()
    results = [TaskResult.load(folder / "rte" / f"seed-{seed}") for seed in (1, 2)]
    wanted = {"max_length": 32, "batch_size": 4, "learning_rate": 1e-3}
    for seed, result in enumerate(results, start=1):
        assert {**result.request["settings"], **wanted, "seed": seed} == result.request["settings"]
        assert list(result.scores["validation"]) == list(result.costs) == ["whole", "half"]
    names = [f"glue-{size}-seed-{seed}.zip" for seed in (1, 2) for size in ("whole", "half")]
    assert sorted(path.name for path in (folder / "zips").iterdir()) == sorted(names)
    with zipfile.ZipFile(folder / "zips" / names[0]) as archive:
        assert archive.namelist() == ["RTE.tsv"]


def test_what_is_done_is_not_done_again_and_other_settings_are_refused(runs, capsys):
    folder, command, former = runs
    before = (folder / "rte" / "seed-1" / "result.json").stat().st_mtime_ns
    output = run(*command)
    assert "Train all sizes" not in output and cells(output, "rte", "half") == cells(former, "rte", "half")
    assert (folder / "rte" / "seed-1" / "result.json").stat().st_mtime_ns == before
    status, error = fail(capsys, *command, "--train-rows", 2)
    assert (
        status == 1 and "has the result of a run with train_rows=None, and now it is 2. Give another folder" in error
    )


def test_a_trained_supernet_becomes_a_family_and_the_beginning_of_another_task(runs, rows, tmp_path):
    supernet = runs[0] / "rte" / "seed-1" / "supernet"
    assert "accuracy" in run("export", supernet, "-o", tmp_path / "family", "--sequence-length", 16)
    assert hf_elastic.load_family(tmp_path / "family").names == ["whole", "half"]
    options = ["--init-from", supernet, "--data-dir", rows, *SHORT, "--argument", "weight_decay=0.25"]
    output = run("superglue", "--task", "cb", "-o", tmp_path / "cb", *options, "--calibrate", 0.25, "--robustness")
    result = TaskResult.load(tmp_path / "cb" / "cb" / "seed-42")
    assert list(result.costs) == ["whole", "half"]  # those that the supernet names
    assert result.request["settings"]["other_arguments"]["weight_decay"] == 0.25
    assert result.request["new_head"] and result.request["held_out_fraction"] == 0.25
    assert list(result.robustness) == ["typos", "case", "order"] and "robust" in output
    model = load_elastic(tmp_path / "cb" / "cb" / "seed-42" / "supernet")
    assert model.config.id2label == {0: "entailment", 1: "contradiction", 2: "neutral"}


def test_a_diagnostic_beside_its_task_and_several_splits(checkpoint, rows, tmp_path):
    tasks = ["--task", "mnli", "--task", "ax", "--model", checkpoint, "--data-dir", rows]
    output = run("glue", *tasks, "-o", tmp_path, *SETTINGS, "--submission", tmp_path / "zips")
    scores = TaskResult.load(tmp_path / "mnli" / "seed-42").scores
    assert list(scores) == ["validation_matched", "validation_mismatched"]
    assert cells(output, "mnli", "half") and "ax " not in output.partition("GLUE")[2]  # whose labels are hidden
    with zipfile.ZipFile(tmp_path / "zips" / "glue-half-seed-42.zip") as archive:
        assert archive.namelist() == ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"]


def test_folds(checkpoint, rows, tmp_path):
    options = ["--model", checkpoint, "--data-dir", rows, *SETTINGS, "--folds", 2]
    assert "±" in cells(run("glue", "--task", "rte", "-o", tmp_path, *options), "rte", "half")
    assert TaskResult.load(tmp_path / "rte" / "seed-42-fold-1").rows == {"train": 2, "validation": 2}


def test_a_task_that_fails_does_not_stop_the_others_and_is_told_at_the_end(checkpoint, rows, tmp_path, capsys):
    out, zips = tmp_path / "[red]runs[bold]", tmp_path / "zips"  # which is markup elsewhere
    options = ["--model", checkpoint, "--data-dir", rows, "-o", out, "--submission", zips, *SETTINGS]
    status, error = fail(capsys, "glue", "--task", "cola", "--task", "rte", *options)
    assert status == 1 and "error: 1 of the trainings failed, run again for these alone: cola/seed-42: " in error
    assert TaskResult.load(out / "rte" / "seed-42").scores and (out / "report.md").is_file()
    assert "no rows of cola" in (out / "cola" / "seed-42" / "error.txt").read_text()
    assert not zips.exists()
    assert f"{out}/report.md" in "".join(run("glue", "--task", "rte", *options).split())
    assert sorted(path.name for path in zips.iterdir())


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["glue", "--task", "rte"], 2, "Give a checkpoint as --model, or as --init-from."),
        (["glue", "--task", "rte", "--model", "a", "--init-from", "b"], 2, "Give a checkpoint as --model, or as"),
        (["glue", "--model", "a"], 2, "Missing option '--task'"),
        (["glue", "--task", "rte", "--model", "a", "-a", "learning_rate=1"], 2, "give it as --learning-rate"),
        (["glue", "--task", "boolq", "--model", "{checkpoint}"], 1, "'boolq' is a task of super_glue. Its tasks are"),
        (["superglue", "--task", "cola", "--model", "{checkpoint}"], 1, "super_glue has no task 'cola'. 'cola' is"),
        (["glue", "--task", "rte", "--model", "./none"], 1, "./none is no folder here"),
        (["glue", "--task", "rte", "--model", "{checkpoint}", "--folds", "1"], 1, "folds=1: give at least 2, or 0"),
        (
            ["glue", "--task", "rte", "--model", "{checkpoint}", "--folds", "2", "--robustness"],
            1,
            "keeps no supernets",
        ),
        (
            ["glue", "--task", "ax", "--model", "{checkpoint}", "--folds", "2"],
            1,
            "ax is a diagnostic without training",
        ),
        (
            ["glue", "--task", "rte", "--model", "a", "--folds", "2", "--submission", "b"],
            2,
            "--folds does not predict",
        ),
        (
            ["glue", "--task", "rte", "--model", "{checkpoint}", "--multi-task", "by_size"],
            1,
            "sampling='by_size' is none",
        ),
        (
            ["glue", "--task", "rte", "--model", "{checkpoint}", "--data-dir", "./none"],
            1,
            "There is no folder './none' to read rte from.",
        ),
        (
            ["glue", "--task", "rte", "--model", "{checkpoint}", "--data-dir", "{rows}", "--max-length", "512"],
            1,
            "max_length=512: this tokenizer's model takes from",
        ),
    ],
)
def test_what_cannot_be_run(capsys, checkpoint, rows, tmp_path, arguments, status, message):
    given = [argument.format(checkpoint=checkpoint, rows=rows) for argument in arguments]
    found, error = fail(capsys, *given, "-o", tmp_path / "out")
    assert found == status
    assert message in error


def test_what_the_report_needs_is_missed_before_a_training(capsys, checkpoint, rows, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    options = ["--model", checkpoint, "--data-dir", rows, *SETTINGS]
    status, error = fail(capsys, "glue", "--task", "rte", "-o", tmp_path / "out", *options)
    assert status == 1 and 'needs `matplotlib`: pip install "hf_elastic[export]"' in error
    assert not (tmp_path / "out").exists()


def test_an_ensemble_of_the_seeds_of_a_size(runs, tmp_path):
    folder = runs[0]
    members = ["--member", f"{folder}:half"]
    output = run("ensemble", "--task", "rte", *members, "-o", tmp_path, "--submission", tmp_path / "zips")
    report = next(line for line in (folder / "report.md").read_text().splitlines() if "half, ensemble" in line)
    accuracy = float(cells(output, "ensemble")[-1])
    assert f"| {100 * accuracy:.1f} |" in report
    for seed in (1, 2):
        score = TaskResult.load(folder / "rte" / f"seed-{seed}").scores["validation"]["half"]["accuracy"]
        assert cells(output, f"{folder}:half:{seed}")[-1] == f"{score:.4f}"
    assert "validation accuracy" in output and "Recognizing Textual Entailment (glue rte)" in output
    saved = Predictions.load(tmp_path / "rte" / "ensemble" / "predictions" / "test" / "ensemble.npz")
    with zipfile.ZipFile(tmp_path / "zips" / "glue-ensemble.zip") as archive:
        lines = archive.read("RTE.tsv").decode().splitlines()[1:]
    names = ("entailment", "not_entailment")
    assert [line.split("\t")[1] for line in lines] == [names[answer] for answer in saved.answers]


def test_an_ensemble_of_sizes_with_weights(runs, tmp_path):
    members = [f"{runs[0]}:whole:1", f"{runs[0]}:half:1"]
    chosen = ["--member", members[0], "--weight", 3, "--member", members[1], "--weight", 1]
    output = run("ensemble", "--task", "all", *chosen, "-o", runs[0])
    assert [cells(output, member)[1] for member in members] == ["0.75", "0.25"]
    stored = json.loads((runs[0] / "rte" / "ensemble" / "ensemble.json").read_text())
    assert [(of["size"], of["weight"]) for of in stored["members"]] == [("whole", 3.0), ("half", 1.0)]
    assert f"{stored['scores']['validation']['accuracy']:.4f}" == cells(output, "ensemble")[-1]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--member", "{runs}:half", "--weight", "1", "--weight", "2"], 2, "2 times --weight for 1 times --member"),
        (["--member", "{runs}:half", "--weight", "0"], 1, "error: weight=0.0 of a member of the ensemble has to be"),
        (["--member", "{runs}:half:1"], 1, "half:1: give at least two members."),
        (["--member", "{runs}:tiny"], 1, "has no size 'tiny' of rte, but whole, half."),
        (["--member", "{runs}:half:7"], 1, "has rte of the seeds 1, 2, and not of 7."),
        (["--member", "./none:half"], 1, "there is no folder './none'."),
    ],
)
def test_what_is_no_ensemble(capsys, runs, tmp_path, arguments, status, message):
    given = [argument.format(runs=runs[0]) for argument in arguments]
    found, error = fail(capsys, "ensemble", "--task", "rte", *given, "-o", tmp_path / "out")
    assert found == status
    assert message in error
    assert not (tmp_path / "out").exists()
