"""Token embeddings and the two ways to say where a token stands: learned positions and rotations."""

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from .configuration_elastic import ElasticConfig
from .slicing_elastic import ElasticLayerNorm, ElasticLinear, leading


class ElasticEmbeddings(nn.Module):
    """Sum of word, position and token type embeddings, normalized and projected to the hidden size.

    A sub-network of a smaller hidden size has the leading features of them, or of the projection where there is one.
    """

    def __init__(self, config: ElasticConfig):
        super().__init__()
        size = config.embedding_size
        self.max_position_embeddings = config.max_position_embeddings
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_token_id)
        self.cumulative_positions = config.position_embedding_type == "cumulative"
        self.padding_idx = config.pad_token_id or 0
        self.position_embeddings = (
            None if config.position_embedding_type == "rotary" else nn.Embedding(config.max_position_embeddings, size)
        )
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size) if config.type_vocab_size else None
        self.norm = ElasticLayerNorm(size, eps=config.layer_norm_eps, bias=config.norm_bias)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.projection = ElasticLinear(size, config.hidden_size) if config.embedding_projection else None

    def forward(
        self,
        input_ids: torch.LongTensor | None,
        token_type_ids: torch.LongTensor | None,
        position_ids: torch.LongTensor,
        inputs_embeds: torch.FloatTensor | None = None,
        hidden_size: int | None = None,
    ) -> torch.Tensor:
        embeddings = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        if self.token_type_embeddings is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros(embeddings.shape[:-1], dtype=torch.long, device=embeddings.device)
            embeddings = embeddings + self.token_type_embeddings(token_type_ids)
        if self.position_embeddings is not None:
            embeddings = embeddings + self.position_embeddings(position_ids)
        if self.projection is None:
            return self.dropout(self.norm(embeddings[..., :hidden_size]))
        embeddings = self.dropout(self.norm(embeddings))
        return self.projection(embeddings, **leading(hidden_size, self.projection.out_features))

    @property
    def available_positions(self) -> int:
        """Tokens that an input may have. Positions that are counted as RoBERTa does begin behind that of padding."""
        return self.max_position_embeddings - (self.padding_idx + 1 if self.cumulative_positions else 0)

    def make_position_ids(
        self, input_ids: torch.LongTensor | None, inputs_embeds: torch.FloatTensor | None
    ) -> torch.LongTensor:
        """Gives the positions of an input that comes without: `(batch, length)`, or `(1, length)` where rows agree.

        Raises:
            ValueError: If the input is longer than there are positions.
        """
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        length, device = tokens.shape[1], tokens.device
        available = self.available_positions
        first = self.max_position_embeddings - available
        # A traced length is symbolic, and comparing it would fix its range.
        if self.position_embeddings is not None and not torch.compiler.is_compiling() and length > available:
            raise ValueError(
                f"The input has {length} tokens, the model {available} positions: truncate it, e.g. "
                f"tokenizer(..., truncation=True, max_length={available})."
            )
        if self.cumulative_positions and inputs_embeds is None:
            is_token = input_ids.ne(self.padding_idx).long()
            return is_token.cumsum(dim=1) * is_token + self.padding_idx
        return torch.arange(first, first + length, device=device).unsqueeze(0)


class RotaryEmbedding(nn.Module):
    """Angles of rotary position embeddings (Su et al. 2021, https://arxiv.org/abs/2104.09864), by layer type."""

    def __init__(self, config: ElasticConfig):
        super().__init__()
        self.config = config

    def forward(
        self, hidden_states: torch.Tensor, position_ids: torch.LongTensor, layer_type: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gives cosine and sine of shape `(batch or 1, 1, length, head_dim)`, in the hidden states' data type."""
        parameters = self.config.rope_parameters
        if layer_type not in parameters:
            layer_type = "full_attention"
        # Made anew in each pass, which costs nothing beside a layer: a buffer would have to survive loading without
        # being saved, and casts to a precision that positions do not stand.
        if parameters[layer_type]["rope_type"] == "default":
            exponents = torch.arange(0, self.config.head_dim, 2, device=hidden_states.device).float()
            frequencies = 1.0 / parameters[layer_type]["rope_theta"] ** (exponents / self.config.head_dim)
            scaling = 1.0
        else:
            initialize = ROPE_INIT_FUNCTIONS[parameters[layer_type]["rope_type"]]
            frequencies, scaling = initialize(self.config, hidden_states.device, layer_type=layer_type)
        angles = position_ids[:, None, :, None].float() * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return (angles.cos() * scaling).to(hidden_states.dtype), (angles.sin() * scaling).to(hidden_states.dtype)


def rotate(states: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotates queries or keys of shape `(batch, heads, length, head_dim)`; computed in single precision."""
    cosine, sine = angles
    first, second = states.float().chunk(2, dim=-1)
    rotated = states.float() * cosine + torch.cat((-second, first), dim=-1) * sine
    return rotated.to(states.dtype)


__all__ = ["ElasticEmbeddings", "RotaryEmbedding", "rotate"]
