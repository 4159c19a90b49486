"""Teachers of other architectures and sizes, and a tokenizer of their own for them."""

import random
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from tests.conftest import TINY, randomize
from tests.training.cases import make_rows

WORDS = [f"word{i}" for i in range(20)]


def make_teacher(architecture: str = "Bert", seed: int = 3, **settings) -> transformers.PreTrainedModel:
    """A randomized classifier of three classes, smaller than the student unless the settings say otherwise."""
    sizes = {**TINY, "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "num_labels": 3}
    config = getattr(transformers, f"{architecture}Config")(**{**sizes, **settings})
    model = getattr(transformers, f"{architecture}ForSequenceClassification")(config)
    return randomize(model, seed).eval()


def make_tokenizer(seed: int = 0) -> transformers.PreTrainedTokenizerFast:
    """A tokenizer of whole words, whose ids are in an order that depends on the seed."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = random.Random(seed).sample(WORDS, len(WORDS))
    tokenizer = Tokenizer(WordLevel({token: i for i, token in enumerate([*special, *words])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def make_texts(number: int, seed: int = 0) -> list[str]:
    """Texts of different lengths."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(2, 9))) for _ in range(number)]


def save_teacher(folder: Path, tokenizer: transformers.PreTrainedTokenizerBase, **settings) -> Path:
    """Saves a teacher with its tokenizer."""
    make_teacher(**settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_numbered_rows(number: int) -> list[dict[str, Any]]:
    """Examples of three classes with their ids."""
    return [{**row, "example_id": i} for i, row in enumerate(make_rows("classification", number))]
