"""The demo: the real fast run, and the same way on a tiny checkpoint."""

import dataclasses
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from hf_elastic import load_family
from hf_elastic.cli import app
from hf_elastic.quickstart import RECIPE, loading_code, make_demo_family
from hf_elastic.recipes import Recipe, TrainingSettings
from hf_elastic.tasks import bbc_news
from tests.tiny_bert import save_tiny_bert

QUICK = TrainingSettings(
    max_length=16, finetune_epochs=1, cotrain_epochs=1, learning_rate=1e-3, rank_examples=32, train_rows=64
)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """The demo on a tiny random checkpoint and few short articles."""
    folder = tmp_path_factory.mktemp("demo")
    data = bbc_news.load()
    source = save_tiny_bert(folder / "bert", data.train["text"])
    recipe = dataclasses.replace(Recipe.load(RECIPE), training=QUICK, fast={"train_rows": 48})
    phases = []
    family = make_demo_family(folder / "family", True, recipe, source, data, phases.append)
    assert phases == ["data", "fine-tune", "rank", "co-train", "evaluate", "export"]
    return family


def test_the_family_has_four_scored_sizes(family):
    assert load_family(family.path).names == ["large", "base", "small", "tiny"]
    for row in family.table():
        assert {"size", "parameters", "MB", "FLOPs", "ms", "accuracy", "f1_macro"} <= set(row)
        assert 0 <= float(row["accuracy"]) <= 1


def test_the_cards_say_what_was_trained_on(family):
    details = family.manifest.details
    assert details.dataset == "BBC News"
    assert details.training_data.startswith("A fast trial on only 48 training rows of these: 1,486 BBC News articles")
    assert details.settings["training rows"] == 48
    assert details.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert "48" in (family.path / "small" / "README.md").read_text(encoding="utf-8")


def test_a_folder_with_other_files_is_refused_before_the_training(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds no family that could be replaced"):
        make_demo_family(tmp_path, on_phase=pytest.fail)
    with pytest.raises(NotADirectoryError, match="notes.txt is a file"):
        make_demo_family(tmp_path / "notes.txt", on_phase=pytest.fail)


@pytest.mark.parametrize("size", ["large", "tiny"])
def test_the_three_lines_load_a_size_in_a_fresh_process(family, size):
    code = loading_code(family, size)
    assert len(code.splitlines()) == 3
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert any(label in result.stdout for label in ("business", "entertainment", "politics", "sports", "tech"))


@pytest.mark.slow
def test_the_fast_demo_gives_useful_sizes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["quickstart", "--fast"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "Fast trial" in result.output
    family = load_family("minilm-bbc-news")
    scores = {name: member.metrics["accuracy"] for name, member in family.members.items()}
    assert scores["large"] > 0.9
    assert scores["tiny"] > 0.85
    encoder = {name: member.parameters.encoder for name, member in family.members.items()}
    assert encoder["tiny"] <= 0.25 * encoder["large"]
    lines = result.output.rstrip().splitlines()[-3:]
    assert lines == loading_code(family, "small").splitlines()
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)
