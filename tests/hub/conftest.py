"""A tokenizer for the tiny models, a family on disk, and a manifest made by hand."""

import shutil
from pathlib import Path

import pytest
from transformers import BertTokenizer, PreTrainedTokenizerBase

import hf_elastic
from hf_elastic import ElasticConfig, SubnetConfig, export_family
from hf_elastic.hub.details import TrainingDetails
from hf_elastic.hub.manifest import LatencyRecord, Layer, Manifest, Member, Parameters

from ..conftest import TINY, randomize

METRICS = {"large": {"accuracy": 0.975, "f1": 0.97}, "tiny": {"accuracy": 0.9375, "f1": 0.93}}
DETAILS = {
    "name": "news-elastic",
    "description": "Sorts news into three sections.",
    "dataset": "BBC News",
    "dataset_id": "SetFit/bbc-news",
    "dataset_split": "test",
    "training_data": "1225 articles, in proportion to the sections.",
    "settings": {"epochs": 3, "learning rate": 2e-5, "mixed precision": False},
    "language": "en",
    "license": "apache-2.0",
    "base_model": "sentence-transformers/all-MiniLM-L6-v2",
    "limits": "Articles from 2004 and 2005 alone.",
    "citation": "@misc{news, title={News}}",
    "run": {
        "seed": 7,
        "versions": {"hf_elastic": "0.1.0", "torch": "2.13.0"},
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "data": {
            "train": {"rows": 1225, "columns": ["text", "label"], "content_hash": "ab" * 32, "hashed_rows": 1225},
            "evaluation": {"rows": 9000, "columns": ["text"], "content_hash": "cd" * 32, "hashed_rows": 4096},
        },
        "arguments": {"learning_rate": 2e-5, "optim": "adamw_torch", "subnet_weights": {"tiny": 0.5}},
    },
}


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    """A BERT tokenizer with as many words as the tiny models have."""
    vocabulary = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."]
    vocabulary.write_text("\n".join([*special, *(f"word{i}" for i in range(TINY["vocab_size"] - len(special)))]))
    return BertTokenizer(str(vocabulary), model_max_length=TINY["max_position_embeddings"])


@pytest.fixture(scope="session")
def exported(tokenizer: PreTrainedTokenizerBase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family of a classifier, for tests that only read it."""
    config = ElasticConfig(**TINY, id2label={0: "business", 1: "sport", 2: "tech"}, source_model_type="bert")
    config.subnets = {
        "tiny": SubnetConfig(layers=(0, 3), num_attention_heads=(3, 2), intermediate_size=32),
        "large": SubnetConfig(),
    }
    model = randomize(hf_elastic.ElasticForSequenceClassification(config))
    out = tmp_path_factory.mktemp("exported") / "news"
    export_family(model, tokenizer, out, metrics=METRICS, details=DETAILS, sequence_length=32)
    return out


@pytest.fixture
def family_path(exported: Path, tmp_path: Path) -> Path:
    """A copy of the family, for tests that damage it."""
    return Path(shutil.copytree(exported, tmp_path / "news"))


@pytest.fixture
def manifest() -> Manifest:
    """A manifest of three sizes, two of them evaluated, with round numbers."""

    def member(name: str, layers: int, total: int, milliseconds: float, **metrics: float) -> Member:
        return Member(
            name=name,
            subnet=SubnetConfig(layers=None if layers == 6 else tuple(range(layers))),
            layers=[Layer(layer, 12, 1536, 384) for layer in range(layers)],
            parameters=Parameters(embeddings=11_900_000, encoder=total - 12_000_000, head=100_000, total=total),
            size_on_disk={"safetensors": 4 * total},
            flops=100 * total,
            latency=LatencyRecord(milliseconds, 1, 128, 2, "cpu", "float32", 20, "Some Processor", "2026-01-31"),
            metrics=metrics,
        )

    members = [
        member("large", 6, 22_700_000, 20.0, accuracy=0.975, f1=0.97),
        member("small", 3, 17_300_000, 10.0, accuracy=0.95, f1=0.94),
        member("tiny", 1, 13_800_000, 4.0),
    ]
    return Manifest(
        format_version=1,
        name="news-elastic",
        created="2026-01-31T12:00:00+00:00",
        source="sentence-transformers/all-MiniLM-L6-v2",
        source_model_type="bert",
        architecture="ElasticForSequenceClassification",
        task="text-classification",
        labels=["business", "sport"],
        hidden_size=384,
        max_length=512,
        sequence_length=128,
        formats=["safetensors"],
        primary_metric="accuracy",
        greater_is_better=True,
        versions={"hf_elastic": "0.1.0", "transformers": "5.24.0", "torch": "2.13.0", "python": "3.11.7"},
        details=TrainingDetails(**DETAILS),
        supernet=member("supernet", 6, 22_700_000, 20.0),
        members=members,
    )
