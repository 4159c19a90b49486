import json
import platform
import shutil
import subprocess
from dataclasses import replace

import pytest
import torch
import transformers

import hf_elastic
from hf_elastic import ElasticTrainingArguments
from hf_elastic.hub.cards import render_card
from hf_elastic.hub.details import TrainingDetails
from hf_elastic.training.provenance import RunRecord, public_arguments
from tests.hub.conftest import manifest  # noqa: F401
from tests.training.cases import make_rows

TOKEN = "hf_" + "aBcDeFgHiJ" * 3
PRIVATE = {
    "hub_token": TOKEN,
    "hub_model_id": "someone/secret-model",
    "run_name": "someones-run",
    "project": "someones-project",
    "optim_args": f"token={TOKEN}",
    "lr_scheduler_kwargs": {"num_cycles": 0.5, "cache_path": "somewhere", "note": "/data/someone/x", TOKEN: 1},
    "label_names": ["labels", "/data/someone/labels", "someone@example.com", "https://example.com"],
    "accelerator_config": {"split_batches": False},
    "metric_for_best_model": "eval_small_accuracy",
    "subnet_weights": {"tiny": 0.5},
    "seed": 5,
}


@pytest.fixture
def args(tmp_path) -> ElasticTrainingArguments:
    return ElasticTrainingArguments(str(tmp_path / "someones-output"), **PRIVATE)


def test_nothing_private_is_written_or_shown(tmp_path, args, manifest):  # noqa: F811
    """Into the file, the manifest, or the card."""
    rows = [{**row, "text": "a private sentence"} for row in make_rows("classification", 8)]
    record = RunRecord.of(args, rows, {"first": rows[:4], "second": rows[4:]})
    record.save(tmp_path / "checkpoint")
    shown = replace(manifest, details=TrainingDetails(run=record))
    shown.write(tmp_path)
    card = render_card(shown, manifest.members[0]).content
    assert "Trained with seed 5" in card and '"num_cycles": 0.5' in card
    texts = [card, *((tmp_path / name).read_text() for name in ("family.json", "checkpoint/run.json"))]
    secrets = [TOKEN, "aBcDeFgHiJ", "someone", "somewhere", "private sentence", "example.com", str(tmp_path)]
    for text in texts:
        assert not [secret for secret in [*secrets, platform.node()] if secret in text]


def test_arguments_that_say_how_it_was_trained_are_kept(args):
    public = public_arguments(args)
    assert public["lr_scheduler_kwargs"] == {"num_cycles": 0.5}
    assert public["label_names"] == ["labels"]
    assert public["accelerator_config"]["split_batches"] is False
    assert public["metric_for_best_model"] == "eval_small_accuracy"
    assert public["subnet_weights"] == {"tiny": 0.5}
    assert (public["optim"], public["learning_rate"], public["sampling"]) == ("adamw_torch_fused", 5e-5, "sandwich")
    assert public["average_tokens_across_devices"] is True
    left_out = {
        *("output_dir", "run_name", "project", "hub_token", "hub_model_id", "hub_strategy", "hub_private_repo"),
        *("hub_always_push", "hub_revision", "push_to_hub", "trackio_space_id", "trackio_bucket_id"),
        *(
            "trackio_static_space_id",
            "resume_from_checkpoint",
            "local_rank",
            "deepspeed",
            "optim_args",
            "teacher_cache_dir",
        ),
    }
    assert set(args.to_dict()) - set(public) == left_out


@pytest.mark.parametrize(
    "text",
    [
        *("betas=(0.9,0.98)", "layers.3", "cosine_warmup_with_min_lr", "a b", ""),
        *(
            "eval_small_f1_weighted",
            "eval_edge-host_recall_at_100",
            "small_v2_for_phones_2024",
            "Base2_Macro_F1_of_all",
        ),
    ],
)
def test_short_text_is_kept(tmp_path, text):
    assert public_arguments(ElasticTrainingArguments(str(tmp_path), optim_args=text))["optim_args"] == text


@pytest.mark.parametrize(
    "text",
    [
        *("/data/x", "a/b", "~", r"C:\Users", "https:host", "10.0.0.1", "me@host", "hf_abc", "sk-abc", "ghp_abc"),
        *("0123456789abcdef0123456789abcdef", "path=$HOME", "a\nb", "550e8400-e29b-41d4-a716-446655440000"),
        *(
            "note=kLmN3xQz_9aB-cDe7fGhI",
            "small_v2_for_9f86d081884c7d65",
            "xoxb-123456789012-abcdefghi",
            "q" * 20 + "7",
        ),
    ],
)
def test_text_of_the_form_of_something_private_is_left_out(tmp_path, text):
    assert "optim_args" not in public_arguments(ElasticTrainingArguments(str(tmp_path), optim_args=text))


def test_sizes_may_have_any_name(tmp_path):
    lengths = {"edge_host": 64, "key_2_user_of_phones_2024": 128}
    settings = {"subnet_max_lengths": lengths, "subnet_weights": {"edge_host": 0.5, TOKEN: 2.0}}
    public = public_arguments(ElasticTrainingArguments(str(tmp_path), **settings))
    assert public["subnet_max_lengths"] == lengths
    assert public["subnet_weights"] == {"edge_host": 0.5}


def test_the_name_of_the_machine_is_left_out(tmp_path):
    if not platform.node():
        pytest.skip("this machine has no name")
    name = f"on {platform.node()}"
    assert "optim_args" not in public_arguments(ElasticTrainingArguments(str(tmp_path), optim_args=name))


def test_versions_and_data(tmp_path, args):
    rows = make_rows("classification", 8)
    record = RunRecord.of(args, rows, rows[:3])
    assert record.versions["hf_elastic"] == hf_elastic.__version__
    assert record.versions["transformers"] == transformers.__version__
    assert record.versions["torch"] == torch.__version__
    assert record.versions["python"] == platform.python_version()
    assert (record.seed, record.data_seed) == (5, None)
    assert {use: (data.rows, data.columns) for use, data in record.data.items()} == {
        "train": (8, ["input_ids", "labels"]),
        "evaluation": (3, ["input_ids", "labels"]),
    }
    assert list(RunRecord.of(args, None, {"a": rows}).data) == ["evaluation (a)"]
    assert RunRecord.of(args).data == {}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_the_working_directory(tmp_path, args, monkeypatch):
    def git(*command: str) -> str:
        settings = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
        return subprocess.run(
            ["git", *settings, *command], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert RunRecord.of(args).git_commit is None
    git("init", "-q")
    git("remote", "add", "origin", "https://example.com/someone/x.git")
    assert RunRecord.of(args).git_commit is None
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-q", "-m", "a")
    git("tag", "-a", "secret-name", "-m", "a")
    commit = git("rev-parse", "HEAD")
    assert RunRecord.of(args).git_commit == commit
    (tmp_path / "file").write_text("b")
    assert RunRecord.of(args).git_commit == f"{commit}-dirty"


def test_a_record_comes_back_from_a_folder(tmp_path, args):
    assert RunRecord.load(tmp_path) is None
    record = RunRecord.of(args, make_rows("classification", 8))
    record.save(tmp_path / "new" / "folder")
    assert RunRecord.load(tmp_path / "new" / "folder") == record
    values = json.loads((tmp_path / "new" / "folder" / "run.json").read_text())
    assert RunRecord.read({**values, "of_a_later_version": 1}) == record


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"seed": 1, "data": 3}'])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match="run.json cannot be read: .*Remove it, or train again"):
        RunRecord.load(tmp_path)
