"""How the program reports what is wrong: one line and status 1, usage errors status 2, the traceback on demand."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import hf_elastic
from hf_elastic.cli import app, main

_TRAINING = ("quickstart", "convert", "rank", "check", "train", "glue", "superglue")
COMMANDS = (*_TRAINING, "search", "ensemble", "extract", "export", "info")


def fail(capsys, *arguments):
    """Runs a command that has to fail and gives its exit status and what it wrote to stderr."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code, capsys.readouterr().err


def test_help_lists_the_commands_and_imports_neither_torch_nor_transformers():
    code = (
        "import sys; from hf_elastic.cli import main\n"
        "try: main(['--help'])\n"
        "finally: assert not {'torch', 'transformers', 'datasets'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for command in COMMANDS:
        assert command in result.stdout


def test_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.strip() == f"hf_elastic {hf_elastic.__version__}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["convert"],
        ["train", "model", "data.csv", "-o", "out", "--batch-size", "many"],
        ["train", "model", "data.csv", "-o", "out", "--subnet", "small"],
        ["train", "model", "data.csv", "-o", "out", "--subnet", "small=wide:0.5"],
        ["train", "model", "data.csv", "-o", "out", "--subnet", "small=width:half"],
        ["train", "model", "data.csv", "-o", "out", "--subnet", "small=width:2"],
        ["convert", "model", "-o", "out", "--subnet", "small=width:0"],
        ["train", "model", "data.csv", "-o", "out", "-a", "learning_rate=0.1"],
        ["check", "model"],
        ["check", "model", "data.csv", "--steps", "1"],
    ],
)
def test_a_wrong_usage_exits_with_status_2(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Usage" in result.output


def test_a_missing_column_is_one_line_that_lists_the_columns(capsys, checkpoint, data_file, tmp_path):
    status, err = fail(capsys, "train", checkpoint, data_file, "-o", tmp_path / "out", "--label-column", "kind")
    assert status == 1
    assert err.splitlines()[-1] == "error: There is no column 'kind'. The columns are: text, label."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "{checkpoint}", "missing.csv"], "error: There is no file or folder 'missing.csv'"),
        (["train", "./no-model", "{data}"], "error: ./no-model is no folder here"),
        (["train", "{checkpoint}", "{data}", "--recipe", "nothing"], "error: There is no recipe 'nothing': give a"),
        (["train", "{checkpoint}", "{data}", "--max-length", "4096"], "error: max_length=4096: this tokenizer's"),
        (["train", "{checkpoint}", "{data}", "--train-rows", "0"], "error: train_rows=0 is smaller than 1."),
        (["train", "{checkpoint}", "{data}", "--cotrain-epochs", "nan"], "error: cotrain_epochs=nan is not finite"),
        (["extract", "{checkpoint}/config.json", "small"], "config.json is a file: give the folder it lies in, "),
        (["convert", "{checkpoint}/config.json"], "config.json is a file: give the folder it lies in, "),
        (["train", "{checkpoint}/config.json", "{data}"], "config.json is a file: give the folder it lies in, "),
        (["convert", "{checkpoint}", "--task", "parsing"], "error: Unknown task 'parsing'"),
        (["extract", "{checkpoint}", "small"], "is a checkpoint of type 'bert', not an elastic one: convert it first"),
        (["export", "{checkpoint}"], "is a checkpoint of type 'bert', not an elastic one: convert it first"),
    ],
)
def test_each_bad_input_is_one_line_on_stderr(capsys, checkpoint, data_file, tmp_path, arguments, message):
    given = [argument.format(checkpoint=checkpoint, data=data_file) for argument in arguments]
    status, err = fail(capsys, *given, "-o", tmp_path / "out")
    assert status == 1
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["train", "check"])
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("smapling=joint", "'smapling' is no training argument. Did you mean sampling?"),
        ("sampling=some", "sampling='some' is unknown. Choose one of joint, sandwich, one_per_step."),
        ("temperature=-1", "temperature=-1 is not positive."),
        ("temperature=warm", "temperature='warm': expected float, got str."),
        ("max_steps=ten", "other_arguments: max_steps='ten': expected int, got str."),
        ("log_resources='false'", "log_resources='false': expected bool, got str"),
        ("early_stopping_min_gain=0.1", "early_stopping_min_gain needs evaluations."),
    ],
)
def test_a_bad_training_argument_is_one_line_before_the_data_are_read(capsys, tmp_path, command, argument, message):
    status, err = fail(capsys, command, "model", "missing.csv", "-o", tmp_path / "out", "-a", argument)
    assert status == 1
    assert message in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("argument", "option"),
    [
        ("learning_rate=0.1", "--learning-rate"),
        ("num_train_epochs=2", "--cotrain-epochs"),
        ("per_device_train_batch_size=4", "--batch-size"),
        ("output_dir=elsewhere", "--output-dir"),
    ],
)
def test_an_argument_with_an_option_of_its_own_names_it(argument, option):
    result = CliRunner().invoke(app, ["check", "model", "data.csv", "-a", argument])
    assert result.exit_code == 2
    output = " ".join(result.output.replace("│", " ").split())
    assert f"--argument {argument.partition('=')[0]}: give it as {option}." in output


def test_labels_that_the_checkpoint_does_not_have_are_an_error(capsys, checkpoint, data_file, tmp_path):
    supernet = tmp_path / "supernet"
    main_arguments = ["convert", checkpoint, "-o", supernet, "--task", "sequence-classification", "--num-labels", 3]
    assert CliRunner().invoke(app, [str(argument) for argument in main_arguments]).exit_code == 0
    status, err = fail(capsys, "train", supernet, data_file, "-o", tmp_path / "out")
    assert status == 1
    assert err.splitlines()[-1].startswith("error: num_labels=3, but column 'label' has 5 labels: 'business', ")


def test_an_unknown_size_is_an_error_that_lists_the_sizes(capsys, checkpoint, tmp_path):
    supernet = tmp_path / "supernet"
    assert CliRunner().invoke(app, ["convert", str(checkpoint), "-o", str(supernet)]).exit_code == 0
    (supernet / "model.safetensors").unlink()  # the names are in the configuration
    status, err = fail(capsys, "extract", supernet, "huge", "-o", tmp_path / "out")
    assert status == 1
    assert err.splitlines()[-1] == f"error: Unknown size 'huge': {supernet} has base, large, small, tiny."


def test_info_of_a_file_is_one_line(capsys, checkpoint):
    status, err = fail(capsys, "info", checkpoint / "config.json")
    assert status == 1
    assert err == f"error: {checkpoint / 'config.json'} is a file: give the folder it lies in, {checkpoint}.\n"


def test_a_folder_with_other_files_is_not_written_to(capsys, checkpoint, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    status, err = fail(capsys, "convert", checkpoint, "-o", tmp_path)
    assert status == 1
    assert err == f"error: {tmp_path} is not empty: give another folder, or --overwrite.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert CliRunner().invoke(app, ["convert", str(checkpoint), "-o", str(tmp_path), "--overwrite"]).exit_code == 0


@pytest.mark.parametrize("debug_first", [True, False])
def test_debug_shows_the_traceback_wherever_it_stands(tmp_path, debug_first):
    command = ["train", "model", "missing.csv", "-o", str(tmp_path / "out"), "--recipe", "nothing"]
    arguments = ["--debug", *command] if debug_first else [*command, "--debug"]
    code = "import sys; from hf_elastic.cli import main; main(sys.argv[1:])"
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert result.returncode == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert "FileNotFoundError: There is no recipe 'nothing'" in result.stderr


def test_an_error_of_the_program_itself_is_named_by_its_type(capsys, monkeypatch, tmp_path):
    def broken(*args, **kwargs):
        raise KeyError("layer")

    monkeypatch.setattr("hf_elastic.recipes.Recipe.load", broken)
    status, err = fail(capsys, "train", "model", "data.csv", "-o", tmp_path / "out", "--recipe", "any")
    assert status == 1
    assert err == "error: KeyError: 'layer' (--debug shows the traceback)\n"
