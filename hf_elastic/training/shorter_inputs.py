"""Inputs of fewer tokens for small sizes, which need not read all of a text to learn its class."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

# What is one number for each token of a text, along the last dimension.
PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def shorten(batch: Mapping[str, Any], max_length: int | None) -> Mapping[str, Any]:
    """Cuts the inputs of a batch after a number of tokens.

    Only for heads whose labels are not per token. Sizes that read less of a text make a training step cheaper, as do
    short sequences in most steps of BERT's pretraining (Devlin et al. 2019, https://arxiv.org/abs/1810.04805).

    Args:
        batch: Inputs of the model, padded on the right.
        max_length: Number of tokens that are kept; None keeps all.

    Returns:
        The batch with shorter inputs; what is not per token is left as it is.

    Raises:
        ValueError: If the padding comes first, so that cutting would take the tokens.

    Example:
        >>> shorten({"input_ids": torch.tensor([[5, 6, 7]]), "labels": torch.tensor([1])}, 2)["input_ids"]
        tensor([[5, 6]])
    """
    if max_length is None:
        return batch
    mask: Tensor | None = batch.get("attention_mask")
    if mask is not None and not mask[..., 0].all():
        raise ValueError(
            "subnet_max_lengths cuts inputs at their end, but the padding comes first in these. Set padding_side="
            '"right" in the tokenizer.'
        )
    shorter = {name: batch[name][..., :max_length] for name in PER_TOKEN if batch.get(name) is not None}
    if batch.get("inputs_embeds") is not None:
        shorter["inputs_embeds"] = batch["inputs_embeds"][..., :max_length, :]
    return {**batch, **shorter}
