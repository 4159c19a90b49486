"""Layers of the encoder: attention and a feed-forward network, or experts, with norms after or before them."""

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .attention_elastic import ElasticAttention
from .configuration_elastic import ElasticConfig
from .experts_elastic import ElasticMoE
from .slicing_elastic import ElasticLayerNorm, ElasticLinear, leading
from .subnet_elastic import LayerSize


class ElasticMLP(nn.Module):
    """Feed-forward network, plain or gated, that can run with its leading neurons alone."""

    def __init__(self, config: ElasticConfig, size: LayerSize):
        super().__init__()
        self.intermediate_size = size.intermediate_size
        hidden_size, bias = config.hidden_size, config.mlp_bias
        self.gate_proj = ElasticLinear(hidden_size, self.intermediate_size, bias=bias) if config.gated_mlp else None
        self.up_proj = ElasticLinear(hidden_size, self.intermediate_size, bias=bias)
        self.down_proj = ElasticLinear(self.intermediate_size, hidden_size, bias=bias)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor, intermediate_size: int | None = None) -> torch.Tensor:
        rows = leading(intermediate_size, self.intermediate_size)
        neurons = self.up_proj(hidden_states, **rows)
        if self.gate_proj is None:
            neurons = self.activation(neurons)
        else:
            neurons = self.activation(self.gate_proj(hidden_states, **rows)) * neurons
        return self.down_proj(neurons, **leading(hidden_states.shape[-1], self.down_proj.out_features))


class ElasticLayer(GradientCheckpointingLayer):
    """Encoder layer with the norms after the residual sums, as in BERT, or before what is summed, as in ModernBERT."""

    def __init__(self, config: ElasticConfig, size: LayerSize):
        super().__init__()
        norm = {"eps": config.layer_norm_eps, "bias": config.norm_bias}
        has_attention_norm = size.layer > 0 or config.first_attention_norm
        self.norm_first = config.norm_position == "pre"
        self.attention = ElasticAttention(config, size)
        self.attention_norm = ElasticLayerNorm(config.hidden_size, **norm) if has_attention_norm else nn.Identity()
        self.mlp = ElasticMoE(config, size) if size.num_experts > 1 else ElasticMLP(config, size)
        self.mlp_norm = ElasticLayerNorm(config.hidden_size, **norm)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        size: LayerSize | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        heads = None if size is None else size.num_attention_heads
        if self.norm_first:
            attention_output, _ = self.attention(self.attention_norm(hidden_states), attention_mask, heads, **kwargs)
            hidden_states = hidden_states + self.dropout(attention_output)
            return hidden_states + self.dropout(self.feed_forward(self.mlp_norm(hidden_states), size))
        attention_output, _ = self.attention(hidden_states, attention_mask, heads, **kwargs)
        hidden_states = self.attention_norm(hidden_states + self.dropout(attention_output))
        return self.mlp_norm(hidden_states + self.dropout(self.feed_forward(hidden_states, size)))

    def feed_forward(self, hidden_states: torch.Tensor, size: LayerSize | None) -> torch.Tensor:
        """Runs the feed-forward network or its experts in the given size."""
        if size is None:
            return self.mlp(hidden_states)
        if isinstance(self.mlp, ElasticMoE):
            return self.mlp(hidden_states, size.intermediate_size, size.num_experts, size.num_experts_per_tok)
        return self.mlp(hidden_states, size.intermediate_size)


__all__ = ["ElasticLayer", "ElasticMLP"]
