"""A random BERT checkpoint on disk, small enough for a test, that reads real text."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
import transformers

from tests.conftest import TINY


def save_tiny_bert(folder: Path, texts: Iterable[str], class_name: str = "BertModel", **settings) -> Path:
    """Saves a model with random weights, and a tokenizer that knows the most frequent words of the texts."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    counts = Counter(word for text in texts for word in text.lower().split() if word.isalpha() and len(word) > 3)
    words = [word for word, _ in counts.most_common(TINY["vocab_size"] - len(special))]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*special, *words]), encoding="utf-8")
    tokenizer = transformers.BertTokenizer(
        str(folder / "vocab.txt"), model_max_length=TINY["max_position_embeddings"], do_lower_case=True
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(**TINY, **settings)
    getattr(transformers, class_name)(config).save_pretrained(folder)
    return folder
