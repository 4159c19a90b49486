"""The check of a training on the command line, by itself and before `train`."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from hf_elastic.cli import app, main

SIZES = ["--subnet", "large=", "--subnet", "tiny=width:0.5,depth:0.5"]
SETTINGS = ["--max-length", "16", "--batch-size", "8", "--learning-rate", "1e-3"]


@pytest.fixture
def broken_checkpoint(checkpoint, tmp_path):
    """The checkpoint, with a weight that is no number."""
    folder = shutil.copytree(checkpoint, tmp_path / "broken")
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "intermediate" in name)
    weights[name].view(-1)[0] = torch.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def check(*arguments):
    """Runs the command, and gives its status, the verdicts by name, and what it printed."""
    arguments = ["check", *SIZES, *SETTINGS, *map(str, arguments)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    rows = [line.split()[:2] for line in result.output.splitlines()]
    verdicts = {row[0]: row[1] for row in rows if len(row) == 2 and row[1] in ("passed", "failed", "skipped")}
    return result.exit_code, verdicts, result.output


def test_a_training_that_works_is_said_to(checkpoint, data_file, tmp_path):
    status, verdicts, output = check(checkpoint, data_file, "--steps", 4, "-o", tmp_path / "out")
    assert status == 0, output
    assert verdicts.pop("communication") == "skipped"
    names = ["data", "sizes", "evaluation", "loss", "checkpoint", "memory", "duration"]
    assert verdicts == dict.fromkeys(names, "passed")
    assert "The fine-tuning of the full model and the ranking" in output
    assert not (tmp_path / "out").exists()


def test_a_training_that_teaches_nothing_exits_with_status_1_and_the_remedy(checkpoint, data_file):
    status, verdicts, output = check(checkpoint, data_file, "--steps", 2, "--learning-rate", 0)
    assert status == 1
    assert [name for name, verdict in verdicts.items() if verdict == "failed"] == ["loss"]
    assert "loss: Choose another learning rate" in output


def test_a_quick_check_does_not_train(checkpoint, data_file):
    status, verdicts, output = check(checkpoint, data_file, "--quick")
    assert status == 0, output
    assert list(verdicts) == ["communication", "data", "sizes", "evaluation"]


def test_an_output_folder_that_train_would_refuse_is_refused_here(capsys, checkpoint, data_file, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit) as stopped:
        main(["check", str(checkpoint), str(data_file), "-o", str(tmp_path)])
    assert stopped.value.code == 1
    assert "is not empty" in capsys.readouterr().err


def test_what_the_fine_tuning_cannot_take_is_refused(capsys, checkpoint, data_file):
    arguments = ["-a", "lr_scheduler_type=reduce_lr_on_plateau", "-a", "eval_strategy=epoch"]
    with pytest.raises(SystemExit) as stopped:
        main(["check", str(checkpoint), str(data_file), *SIZES, *SETTINGS, "--quick", *arguments])
    assert stopped.value.code == 1
    assert "error: The fine-tuning of the full model, which has neither evaluations" in capsys.readouterr().err
    status, _, output = check(checkpoint, data_file, "--quick", *arguments, "--finetune-epochs", 0)
    assert status == 0, output


@pytest.mark.parametrize(
    ("option", "message"), [("--check", "The training is not ready. sizes: The weight"), ("--no-check", "is bad")]
)
def test_train_checks_first_unless_told_not_to(capsys, broken_checkpoint, data_file, tmp_path, option, message):
    again = ["--finetune-epochs", "0", "--rank-examples", "0", option]
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(broken_checkpoint), str(data_file), "-o", str(tmp_path / "out"), *SIZES, *SETTINGS, *again])
    assert stopped.value.code == 1
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()
