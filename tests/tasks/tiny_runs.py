"""Runs of benchmarks that a tiny random model gets through in about a second."""

from pathlib import Path
from typing import Any

import transformers

from hf_elastic.recipes import TrainingSettings
from hf_elastic.tasks.benchmark_request import BenchmarkRequest

from .tiny_tokenizers import wordpiece

SIZES = {"whole": {}, "half": {"depth": 0.5, "width": 0.5}}
SETTINGS = {
    "max_length": 64,
    "batch_size": 4,
    "finetune_epochs": 1.0,
    "cotrain_epochs": 1.0,
    "rank_examples": 4,
    "learning_rate": 1e-3,
}
UNTRAINED = {"finetune_epochs": 0.0, "cotrain_epochs": 0.0, "rank_examples": 0}


def request_of(benchmark: str, source: Path | str, data: Any, **changes: Any) -> BenchmarkRequest:
    """A request with short trainings; `settings` among the changes are added to theirs."""
    settings = {**SETTINGS, **changes.pop("settings", {})}
    return BenchmarkRequest(benchmark, str(source), data=data, **{"sizes": SIZES, "settings": settings, **changes})


def settings_of(**changes: Any) -> TrainingSettings:
    """The settings of such a training."""
    return TrainingSettings().with_arguments({**SETTINGS, **changes})


def save_model(
    folder: Path, minilm: Path, class_name: str = "BertModel", max_tokens: int = 64, **changes: Any
) -> Path:
    """Saves a random model of BERT's kind, with a tokenizer of MiniLM's frequent words, which takes as many tokens."""
    ids = wordpiece(minilm).get_vocab()
    frequent = [word for word in sorted(ids, key=ids.get)[:6000] if not word.startswith("[unused")]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(frequent), encoding="utf-8")
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=max_tokens)
    tokenizer.save_pretrained(folder)
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        **{"max_position_embeddings": 64, **changes},
    )
    model_class(config).save_pretrained(folder)
    return folder
