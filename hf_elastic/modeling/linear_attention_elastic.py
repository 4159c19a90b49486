"""Attention in time and memory linear in the length, without a softmax."""

import torch
from torch import nn


def linear_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, padding_mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Bidirectional linear attention with the feature map `elu(x) + 1`.

    All keys and values are summed up in one matrix per head, which every query reads:
    `phi(q) (sum_j phi(k_j) v_j^T) / (phi(q) sum_j phi(k_j))`. The sums are made in single precision at least, whose
    range a long sequence needs.

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
        query_features = nn.functional.elu(query.to(dtype)) + 1
        key_features = nn.functional.elu(key.to(dtype)) + 1
        if padding_mask is not None:
            key_features = key_features * padding_mask[:, None, :, None]
        summary = key_features.transpose(2, 3) @ value.to(dtype)
        normalizer = query_features @ key_features.sum(dim=2).unsqueeze(-1)
        context = (query_features @ summary) / normalizer.clamp(min=torch.finfo(dtype).tiny)
    return context.to(value.dtype)


__all__ = ["linear_attention"]
