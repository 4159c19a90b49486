"""Checkpoints are converted and loaded by their Hub id, over HTTP, with the package and without it."""

import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import BertForSequenceClassification

from hf_elastic import ElasticForSequenceClassification, extract
from hf_elastic.modeling.configuration_elastic import AUTO_MAP

from .conftest import make_inputs, randomize
from .hub_server import serve


def run(endpoint, code, tmp_path, *arguments):
    """Runs code in a process that knows this Hub alone, with caches of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout.splitlines()[-1])


CONVERT = """
import json, sys, torch
from hf_elastic import convert
model = convert("org/bert", num_labels=3)
inputs = {name: torch.tensor(value) for name, value in json.loads(sys.argv[1]).items()}
model.save_pretrained(sys.argv[2])
print(json.dumps([model(**inputs).logits.tolist(), model.config.source_name_or_path]))
"""
LOAD = """
import json, sys, torch, transformers
if sys.argv[1] == "without":
    sys.modules["hf_elastic"] = None  # importing it is an ImportError from here on
else:
    import hf_elastic
inputs = {name: torch.tensor(value) for name, value in json.loads(sys.argv[2]).items()}
trust = {"trust_remote_code": True} if sys.argv[1] == "without" else {}
model = transformers.AutoModelForSequenceClassification.from_pretrained("org/small", **trust)
encoder = transformers.AutoModel.from_pretrained("org/small", **trust)
assert torch.equal(encoder.layers[0].mlp.up_proj.weight, model.model.layers[0].mlp.up_proj.weight)
model.save_pretrained(sys.argv[3])
again = transformers.AutoModelForSequenceClassification.from_pretrained(sys.argv[3], **trust)
print(json.dumps([type(model).__module__, model(**inputs).logits.tolist(), again(**inputs).logits.tolist()]))
"""


def listed(inputs):
    return json.dumps({name: value.tolist() for name, value in inputs.items()})


def test_convert_takes_a_hub_id(tiny_bert_config, tmp_path):
    source = randomize(BertForSequenceClassification(tiny_bert_config)).eval()
    source.save_pretrained(tmp_path / "bert")
    inputs = make_inputs("ElasticForSequenceClassification")
    with serve({"org/bert": tmp_path / "bert"}) as endpoint:
        logits, remembered = run(endpoint, CONVERT, tmp_path, listed(inputs), tmp_path / "supernet")
    torch.testing.assert_close(torch.tensor(logits), source(**inputs).logits, atol=1e-5, rtol=1e-5)
    assert remembered == "org/bert"


@pytest.mark.parametrize("package", ["with", "without"])
def test_a_member_loads_by_its_hub_id_and_saves_again(package, tiny_config, tmp_path):
    member = extract(randomize(ElasticForSequenceClassification(tiny_config)).eval(), "small")
    member.save_pretrained(tmp_path / "small")
    inputs = make_inputs("ElasticForSequenceClassification")
    with serve({"org/small": tmp_path / "small"}) as endpoint:
        module, logits, again = run(endpoint, LOAD, tmp_path, package, listed(inputs), tmp_path / "again")
    assert module.startswith("transformers_modules." if package == "without" else "hf_elastic.")
    torch.testing.assert_close(torch.tensor(logits), member(**inputs).logits, atol=1e-6, rtol=1e-6)
    assert again == logits
    # What was loaded from the Hub and saved here depends on the repository there no more.
    assert json.loads((tmp_path / "again" / "config.json").read_text())["auto_map"] == AUTO_MAP
    assert (tmp_path / "again" / "modeling_elastic.py").is_file()
