"""`hf-elastic glue` and `superglue`: what is shown, written and refused."""

import zipfile

import pytest
from typer.testing import CliRunner

from hf_elastic.cli import app, main
from tests.tasks.benchmark_rows import write_task

SIZES = ["--subnet", "whole=", "--subnet", "half=depth:0.5"]
SHORT = ["--max-length", "32", "--batch-size", "4", "--finetune-epochs", "0", "--cotrain-epochs", "1"]


@pytest.fixture(scope="module", autouse=True)
def cached_data(tmp_path_factory):
    """Keeps what `datasets` writes out of the user's cache."""
    import datasets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets-cache"))
        yield


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def shown(result):
    """What was printed, wherever the lines break."""
    return "".join(result.output.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the rows of one task, whose name has what is markup elsewhere."""
    path = tmp_path_factory.mktemp("benchmark") / "[red]runs[bold]"
    write_task(path / "rows", "super_glue", "rte")
    return path


@pytest.fixture(scope="module")
def command(checkpoint, folder):
    """The command without its tasks."""
    paths = [
        "--model",
        checkpoint,
        "--data-dir",
        folder / "rows",
        "-o",
        folder / "out",
        "--submission",
        folder / "zips",
    ]
    return ["superglue", *paths, *SIZES, *SHORT, "--rank-examples", "4"]


@pytest.fixture(scope="module")
def failed(command):
    """The command for two tasks, one of which has no rows."""
    return invoke(*command, "--task", "rte", "--task", "cb")


def test_a_failure_is_raised_after_the_report_and_before_a_submission_is_written(failed, folder):
    assert failed.exit_code == 1 and isinstance(failed.exception, RuntimeError)
    message = str(failed.exception)
    assert message.startswith("1 of the trainings failed, run again for these alone: cb/seed-42: FileNotFoundError")
    assert "There are no rows of cb in" in message
    assert "rte/seed-42" in failed.output and "cb/seed-42" in failed.output
    assert (folder / "out" / "report.md").is_file() and not (folder / "zips").exists()


def test_what_is_done_is_reported_and_submitted_without_another_training(failed, command, folder):
    result = invoke(*command, "--task", "rte")
    assert result.exit_code == 0, result.output
    assert "rte/seed-42" not in result.output and "half" in result.output
    assert f"Thereportliesin{folder}/out/report.md." in shown(result)
    assert f"Fortheserver:{folder}/zips/super_glue-half-seed-42.zip" in shown(result)
    assert sorted(path.name for path in (folder / "zips").iterdir()) == [
        "super_glue-half-seed-42.zip",
        "super_glue-whole-seed-42.zip",
    ]
    with zipfile.ZipFile(folder / "zips" / "super_glue-half-seed-42.zip") as archive:
        assert archive.namelist() == ["RTE.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give a checkpoint as --model, or as --init-from."),
        (["--model", "one", "--init-from", "two"], "Give a checkpoint as --model, or as --init-from."),
        (["--model", "one", "--folds", "2", "--submission", "zips"], "which --folds does not predict"),
    ],
)
def test_options_that_do_not_go_together_are_a_wrong_usage(arguments, message):
    result = invoke("glue", "--task", "rte", "-o", "out", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", "").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "rte", "--folds", "1"], "error: folds=1: give at least 2, or 0"),
        (["--task", "rte", "--folds", "-2"], "error: folds=-2: give at least 2, or 0"),
        (["--task", "rte", "--folds", "2", "--robustness"], "error: folds=2 keeps no supernets"),
        (["--task", "rte", "--task", "ax", "--folds", "2"], "error: ax is a diagnostic without training rows"),
        (["--task", "boolq"], "error: glue has no task 'boolq'. 'boolq' is a task of super_glue."),
    ],
)
def test_requests_that_cannot_be_met_are_one_line(capsys, checkpoint, tmp_path, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main(["glue", *arguments, "--model", str(checkpoint), "-o", str(tmp_path / "out")])
    assert stopped.value.code == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(message)
    assert not (tmp_path / "out").exists()
