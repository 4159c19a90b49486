"""What stands between the encoder and a classifier."""

import torch
from torch import nn
from transformers.activations import ACT2FN

from .configuration_elastic import ElasticConfig
from .slicing_elastic import ElasticLayerNorm, ElasticLinear, leading


class ElasticPredictionHead(nn.Module):
    """Dense layer, activation and, if the configuration says so, a norm: what comes before a classifier."""

    def __init__(self, config: ElasticConfig):
        super().__init__()
        self.dense = ElasticLinear(config.hidden_size, config.hidden_size, bias=config.classifier_bias)
        self.activation = ACT2FN[config.classifier_activation]
        self.norm = (
            ElasticLayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.norm_bias)
            if config.classifier_norm
            else nn.Identity()
        )

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        width = leading(hidden_states.shape[-1], self.dense.out_features)
        return self.norm(self.activation(self.dense(hidden_states, **width)))


def classifier_dropout(config: ElasticConfig) -> nn.Dropout:
    """Gives the dropout in front of a classifier: the hidden states' unless the configuration says otherwise."""
    return nn.Dropout(config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout)


class ElasticPooler(ElasticPredictionHead):
    """That layer over what represents a sequence: its first token's hidden state, or the mean over its tokens."""

    def __init__(self, config: ElasticConfig):
        super().__init__(config)
        self.pooling = config.classifier_pooling
        self.skips_padding = config.pooling_skips_padding
        self.dropout = classifier_dropout(config) if config.classifier_input_dropout else nn.Identity()

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, skips_padding: bool = False
    ) -> torch.Tensor:
        if self.pooling == "cls" and (self.skips_padding or skips_padding) and attention_mask is not None:
            first = attention_mask.int().argmax(dim=1)
            pooled = hidden_states[torch.arange(len(first), device=first.device), first]
        elif self.pooling == "cls":
            pooled = hidden_states[:, 0]
        elif attention_mask is None:
            pooled = hidden_states.mean(dim=1)
        else:
            is_token = attention_mask.to(hidden_states.dtype).unsqueeze(-1)
            pooled = (hidden_states * is_token).sum(dim=1) / is_token.sum(dim=1)
        return super().forward(self.dropout(pooled))


__all__ = ["ElasticPooler", "ElasticPredictionHead", "classifier_dropout"]
