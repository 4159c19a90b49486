"""Batches for models that take the padding out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class UnpaddingCollator:
    """Makes an elastic model compute nothing for the padding of a batch, in training and in evaluation.

    The batches of another collator, with the mark that the model reads: it takes the padding out before its first
    layer and puts zeros back after its last, so that outputs, losses and labels have the shapes that they always have.

    Args:
        collator (`Callable`):
            Makes a padded batch with an attention mask of features, e.g. [`~transformers.DataCollatorWithPadding`] or
            [`~transformers.DataCollatorForTokenClassification`].

    References:
        Zeng et al. 2022, Boosting Distributed Training Performance of the Unpadded BERT Model,
        https://arxiv.org/abs/2208.08124

    Example:
        >>> trainer = ElasticTrainer(model, data_collator=UnpaddingCollator(DataCollatorWithPadding(tokenizer)))
    """

    collator: Callable[[list[Any]], dict[str, Any]]

    def __call__(self, features: list[Any]) -> dict[str, Any]:
        batch = dict(self.collator(features))
        batch["unpad_inputs"] = True
        return batch
