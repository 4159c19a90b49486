"""Checkpoints load, and save again, where the package is not installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hf_elastic import (
    ElasticForMaskedLM,
    ElasticForSequenceClassification,
    ElasticTrainer,
    ElasticTrainingArguments,
    extract,
)
from hf_elastic.modeling import modeling_elastic
from hf_elastic.modeling.configuration_elastic import AUTO_MAP

from ..conftest import make_inputs, randomize
from ..test_architectures import inputs_for, make_model

CODE_FILES = {path.name for path in Path(modeling_elastic.__file__).parent.glob("*_elastic.py")}
# Loads a checkpoint with three Auto classes, saves it from there, loads that, and prints the logits of both.
SCRIPT = """
import json, sys
import torch
import transformers

sys.modules["hf_elastic"] = None  # importing it is an ImportError from here on
checkpoint, again, auto_class, inputs, subnet = sys.argv[1:]
inputs = {name: torch.tensor(value) for name, value in json.loads(inputs).items()}
logits = []
for folder in (checkpoint, again):
    model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules."), type(model).__module__
    logits.append(model(**inputs).logits.tolist())
    if subnet:
        assert model(**inputs, subnet=subnet).logits.tolist() != logits[-1]
    for other in ("AutoModel", "AutoModelForTokenClassification", "AutoModelForQuestionAnswering"):
        encoder = getattr(transformers, other).from_pretrained(folder, trust_remote_code=True).base_model
        assert torch.equal(encoder.layers[0].mlp_norm.weight, model.model.layers[0].mlp_norm.weight)
    model.save_pretrained(again)
print("LOGITS", json.dumps(logits))
"""


def run_without_package(tmp_path, checkpoint, auto_class, inputs, subnet=""):
    arguments = [str(checkpoint), str(tmp_path / "again"), auto_class, json.dumps(inputs), subnet]
    # A cache of its own: code that another test left there must not be found.
    environment = {
        **os.environ,
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
        "PYTHONPATH": "",
        "OMP_NUM_THREADS": "1",
    }
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert result.returncode == 0, result.stderr
    line = next(line for line in result.stdout.splitlines() if line.startswith("LOGITS "))
    return json.loads(line.removeprefix("LOGITS "))


@pytest.mark.parametrize(
    ("model_class", "auto_class"),
    [
        (ElasticForSequenceClassification, "AutoModelForSequenceClassification"),
        (ElasticForMaskedLM, "AutoModelForMaskedLM"),
    ],
)
@pytest.mark.parametrize("member", [False, True])
def test_loads_and_saves_again_without_the_package(model_class, auto_class, member, tiny_config, tmp_path):
    model = randomize(model_class(tiny_config)).eval()
    model = extract(model, "small") if member else model
    model.save_pretrained(tmp_path / "checkpoint")
    inputs = {name: value.tolist() for name, value in make_inputs(model_class.__name__).items()}
    subnet = "" if member else "tiny"
    first, second = run_without_package(tmp_path, tmp_path / "checkpoint", auto_class, inputs, subnet)
    expected = model(**make_inputs(model_class.__name__)).logits
    torch.testing.assert_close(torch.tensor(first), expected, atol=1e-6, rtol=1e-6)
    assert second == first
    for folder in ("checkpoint", "again"):
        assert {file.name for file in (tmp_path / folder).glob("*.py")} == CODE_FILES
        assert json.loads((tmp_path / folder / "config.json").read_text())["auto_map"] == AUTO_MAP


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("modernbert", {}),
        ("sparse", {"dense_fallback": False}),
        ("window", {"dense_fallback": False}),
        ("experts", {}),
    ],
)
def test_all_kinds_of_layers_load_without_the_package(architecture, settings, tmp_path):
    model = make_model(architecture, **settings)
    model.save_pretrained(tmp_path / "checkpoint")
    inputs = inputs_for(model)
    arguments = {name: value.tolist() for name, value in inputs.items()}
    first, second = run_without_package(
        tmp_path, tmp_path / "checkpoint", "AutoModelForSequenceClassification", arguments, "small"
    )
    torch.testing.assert_close(torch.tensor(first), model(**inputs).logits, atol=1e-6, rtol=1e-6)
    assert second == first


def test_a_checkpoint_of_the_trainer_loads_without_the_package(tiny_config, tmp_path):
    model = randomize(ElasticForSequenceClassification(tiny_config))
    args = ElasticTrainingArguments(str(tmp_path / "run"), max_steps=1, save_steps=1, report_to="none", use_cpu=True)
    rows = [{"input_ids": [5, 6, 7], "labels": label} for label in (0, 1, 2)]
    ElasticTrainer(model, args, train_dataset=rows).train()
    inputs = {name: value.tolist() for name, value in make_inputs("ElasticForSequenceClassification").items()}
    checkpoint = tmp_path / "run" / "checkpoint-1"
    first, second = run_without_package(
        tmp_path, checkpoint, "AutoModelForSequenceClassification", inputs, subnet="small"
    )
    expected = model.eval()(**make_inputs("ElasticForSequenceClassification")).logits
    torch.testing.assert_close(torch.tensor(first), expected, atol=1e-6, rtol=1e-6)
    assert second == first


def test_a_model_that_was_never_converted_carries_its_code(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} >= CODE_FILES
