"""Layers that can run as the leading block of their weights: what makes a supernet's sizes cheap."""

import torch
from torch import nn


class ElasticLinear(nn.Linear):
    """A linear layer that can run as the leading block of its weight.

    How many features go in, the input says; how many come out, the caller. For all of both it is `nn.Linear`, so that
    adapters, quantizers and exporters treat it as one. Replacements of it that know no blocks (a LoRA layer, a 4-bit
    layer) fail loudly when a sub-network asks for one, instead of silently ignoring what they add.
    """

    def forward(self, hidden_states: torch.Tensor, out_features: int | None = None) -> torch.Tensor:
        in_features = hidden_states.shape[-1]
        if out_features is None and in_features == self.in_features:
            return super().forward(hidden_states)
        bias = self.bias if self.bias is None else self.bias[:out_features]
        return nn.functional.linear(hidden_states, self.weight[:out_features, :in_features], bias)


class ElasticLayerNorm(nn.LayerNorm):
    """A layer norm that can run over leading features alone, as many as its input has."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        width = hidden_states.shape[-1]
        if width == self.normalized_shape[0]:
            return super().forward(hidden_states)
        bias = self.bias if self.bias is None else self.bias[:width]
        return nn.functional.layer_norm(hidden_states, (width,), self.weight[:width], bias, self.eps)


def leading(size: int | None, full: int) -> dict[str, int]:
    """Gives the argument that makes [`ElasticLinear`] compute its first `size` features, none if these are all."""
    return {} if size is None or size == full else {"out_features": size}


__all__ = ["ElasticLayerNorm", "ElasticLinear", "leading"]
