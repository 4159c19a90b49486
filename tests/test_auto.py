"""Importing the package registers it with the Auto classes, whatever is imported first, and loads nothing itself."""

import subprocess
import sys

import pytest

import hf_elastic

PROLOGUES = [
    "import hf_elastic",
    "import transformers, hf_elastic",
    "import hf_elastic; from transformers import AutoModel",
    "import hf_elastic; from transformers import BertModel",  # imports the Auto classes from within modeling_layers
    "import hf_elastic; from transformers import Trainer, pipeline",
    "from transformers import AutoModelForMaskedLM; import hf_elastic",
    "from hf_elastic import SubnetConfig",
    "from hf_elastic import ElasticConfig",
    "from hf_elastic import ElasticModel",
    "from hf_elastic import convert",
]
CHECK = """
import transformers
from hf_elastic.modeling.configuration_elastic import AUTO_MAP
config = transformers.AutoConfig.for_model("elastic", num_hidden_layers=1, hidden_size=16, num_attention_heads=2)
for auto_class, reference in AUTO_MAP.items():
    if auto_class != "AutoConfig":
        model = getattr(transformers, auto_class).from_config(config)
        assert type(model).__name__ == reference.split(".")[1], (auto_class, type(model))
        assert type(model).__module__ == "hf_elastic.modeling.modeling_elastic"
"""


def run(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("prologue", PROLOGUES)
def test_auto_classes_know_the_models(prologue):
    run(f"{prologue}\n{CHECK}")


def test_importing_loads_neither_torch_nor_optional_packages():
    loaded = run("import hf_elastic, sys; print(*sys.modules)").split()
    assert not {"torch", "datasets", "matplotlib", "jinja2", "typer", "peft"} & set(loaded)


def test_every_public_name_is_there():
    for name in hf_elastic.__all__:
        assert getattr(hf_elastic, name) is not None
    assert set(hf_elastic.__all__) <= set(dir(hf_elastic))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = hf_elastic.nothing
