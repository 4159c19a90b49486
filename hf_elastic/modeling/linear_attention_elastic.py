"""Attention in time and memory linear in the length, without a softmax."""

import torch
from torch import nn


def linear_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, padding_mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Bidirectional linear attention with the feature map `elu(x) + 1`.

    All keys and values are summed up in one matrix per head, which every query reads:
    `phi(q) (sum_j phi(k_j) v_j^T) / (phi(q) sum_j phi(k_j))`. The sums are made in single precision at least, whose
    range a long sequence needs. Of rotated queries and keys the features are no function of the distance: under rotary
    positions the output depends on absolute positions, as it does with absolute embeddings.

    Args:
        query, key, value (`torch.Tensor` of shape `(batch, heads, length, head_dim)`):
            What attends, and what is attended to.
        padding_mask (`torch.Tensor` of shape `(batch, length)`, *optional*):
            True for tokens, False for padding, which is not attended to.

    Returns:
        `torch.Tensor` of shape `(batch, heads, length, head_dim)`. A row without any token is 0.

    References:
        Katharopoulos et al. 2020, Transformers are RNNs (https://arxiv.org/abs/2006.16236)
    """
    dtype = torch.promote_types(value.dtype, torch.float32)
    with torch.autocast(device_type=query.device.type, enabled=False):
        query_features, key_features = features(query.to(dtype)), features(key.to(dtype), padding_mask)
        summary = key_features.transpose(2, 3) @ value.to(dtype)
        normalizer = query_features @ key_features.sum(dim=2).unsqueeze(-1)
        context = (query_features @ summary) / normalizer.clamp(min=torch.finfo(dtype).tiny)
    return context.to(value.dtype)


def linear_attention_weights(
    query: torch.Tensor, key: torch.Tensor, padding_mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Gives what each query reads of each key, which [`linear_attention`] never writes out.

    Returns:
        `torch.Tensor` of shape `(batch, heads, length, length)`, whose rows sum to 1.
    """
    weights = features(query) @ features(key, padding_mask).mT
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def features(states: torch.Tensor, padding_mask: torch.Tensor | None = None) -> torch.Tensor:
    """Maps queries or keys to positive features, padding to 0."""
    mapped = nn.functional.elu(states) + 1
    return mapped if padding_mask is None else mapped * padding_mask[:, None, :, None]


__all__ = ["linear_attention", "linear_attention_weights"]
