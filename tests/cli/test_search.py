"""`hf-elastic search`, from a trained supernet on disk to a size within a budget."""

import json

import pytest
import transformers
from typer.testing import CliRunner

import hf_elastic
from hf_elastic.checkpoints import load_elastic, load_supernet, save_with_tokenizer
from hf_elastic.cli import app
from hf_elastic.compression.cost import count_parameters, measure_latency
from hf_elastic.compression.search_result import PICTURE_NAME, RESULT_NAME
from hf_elastic.recipes import subnet_configs

FEW = ["--candidates", "24", "--finalists", "4", "--proxy-rows", "16", "--importance-rows", "8", "--max-length", "16"]
FEW += ["--sequence-length", "16"]


@pytest.fixture(scope="module")
def supernet(checkpoint, tmp_path_factory):
    """A supernet for five topics with two sizes; what it has learned does not matter here."""
    folder = tmp_path_factory.mktemp("supernet")
    model = load_supernet(checkpoint, num_labels=5)
    model.config.subnets = subnet_configs(model.config, {"large": {}, "tiny": {"width": 0.5, "depth": 0.5}})
    save_with_tokenizer(model, checkpoint, folder)
    return folder


def run(*arguments):
    result = CliRunner().invoke(app, ["search", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_a_budget_gives_a_supernet_with_a_size_that_keeps_it(supernet, data_file, tmp_path):
    full = count_parameters(load_elastic(supernet)).total
    limit = full - 5000
    output = run(supernet, data_file, "-o", tmp_path / "out", "--max-params", limit, "--name", "fit", *FEW)
    assert "validation rows, which nothing was chosen by" in output
    model = load_elastic(tmp_path / "out")
    result = json.loads((tmp_path / "out" / RESULT_NAME).read_text())
    (name,) = result["found"]  # a size that has a name keeps it
    assert f"The supernet with {name} lies in" in output
    assert name in ("fit", "tiny") and set(model.config.subnets) == {"large", "tiny", name}
    assert count_parameters(model, name).total <= limit
    assert hf_elastic.SubnetConfig.from_dict(result["found"][name]["subnet"]) == model.config.subnets[name]
    assert result["budget"] == {"max_params": limit}
    assert (tmp_path / "out" / PICTURE_NAME).read_bytes().startswith(b"\x89PNG")
    assert len(transformers.AutoTokenizer.from_pretrained(tmp_path / "out")) == 99


def test_a_latency_gives_the_member_itself(supernet, data_file, tmp_path):
    limit = 3 * measure_latency(load_elastic(supernet), "tiny", sequence_length=16, repeats=3).milliseconds + 20
    output = run(supernet, data_file, "-o", tmp_path / "out", "--max-latency-ms", limit, "--member", *FEW)
    assert "as a model of its own" in output
    member = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert member.config.subnets == {}
    result = json.loads((tmp_path / "out" / RESULT_NAME).read_text())
    (found,) = result["found"].values()
    assert found["parameters"] == sum(parameter.numel() for parameter in member.parameters())
    assert found["milliseconds"] <= limit
    assert result["member_ms"] > 0 and len(result["latency_errors"]) > 0


def test_a_budget_that_nothing_meets_names_the_nearest_and_writes_nothing(supernet, data_file, tmp_path):
    result = CliRunner().invoke(
        app, ["search", str(supernet), str(data_file), "-o", str(tmp_path / "out"), "--max-memory-mb", "0.001", *FEW]
    )
    assert isinstance(result.exception, ValueError)
    assert "No size keeps max_memory_mb=0.001: the nearest is" in str(result.exception)
    assert not (tmp_path / "out").exists()
