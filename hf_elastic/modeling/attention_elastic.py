"""Self-attention of every layer type, and the attention implementation that computes the sparse ones as blocks.

What is distinctive: `"elastic_sparse"` is an ordinary implementation of transformers' attention interface, so that
`attn_implementation` chooses between it and the masked computation of the same patterns by any other implementation.
It is the default of models that have sparse layers.
"""

from collections.abc import Callable

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers import initialization as init
from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import is_flash_attention_requested

from .block_sparse_attention_elastic import BlockPattern, block_bias, block_sparse_attention, sparsity_logit
from .configuration_elastic import ElasticConfig
from .embeddings_elastic import rotate
from .linear_attention_elastic import linear_attention, linear_attention_weights
from .slicing_elastic import ElasticLinear, leading
from .subnet_elastic import LayerSize
from .unpadding_elastic import Unpadding, can_attend_in_one_kernel
from .window_attention_elastic import WindowPattern, window_attention
from .window_attention_elastic import prefers_dense as window_prefers_dense

SPARSE_IMPLEMENTATION = "elastic_sparse"
# Of the learnable sparsities. Adam moves every parameter by about the learning rate, and one that is good for weights
# would leave a number of order one where it is.
SPARSITY_SCALE = 100.0
# In blocks: models that read inputs of this length cut queries into wider blocks, see `BlockPattern`. It is the model
# that decides, not the input, whose output would depend on what it is padded to.
LONG_INPUT = 32


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain attention, the only implementation that can return its weights of shape (batch, heads, length, length)."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


def sparse_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, None]:
    """Attention that computes only the blocks which a layer's type keeps; dense where that is faster.

    Args:
        module (`ElasticAttention`):
            The layer, whose `layer_type` decides.
        query, key, value (`torch.Tensor` of shape `(batch, heads, length, head_dim)`):
            What attends, and what is attended to.
        attention_mask (`torch.Tensor` of shape `(batch, length)`, *optional*):
            True for tokens, False for padding: what the mask function of the same name gives.

    Returns:
        The context of shape `(batch, length, heads, head_dim)`, and no weights.
    """
    length = query.shape[2]
    pattern = module.pattern
    mask = None if attention_mask is None else attention_mask[:, None, None, :]
    is_sparse = not module.runs_dense(length)
    if module.layer_type == "sliding_attention" and is_sparse:
        context = window_attention(query, key, value, attention_mask, pattern, scaling, dropout)
    elif module.layer_type == "block_sparse_attention" and is_sparse:
        sparsity = module.sparsity(query.shape[1])
        context = block_sparse_attention(
            query, key, value, attention_mask, sparsity, module.blocks, scaling, dropout, module.training
        )
    else:
        if module.layer_type == "sliding_attention":
            window = pattern.dense_mask(length, query.device)
            mask = window if mask is None else mask & window
        context = nn.functional.scaled_dot_product_attention(query, key, value, mask, dropout, scale=scaling)
    return context.transpose(1, 2), None


def sparse_attention_mask(
    attention_mask: torch.Tensor | None = None, kv_length: int | None = None, **kwargs
) -> torch.Tensor | None:
    """Gives what [`sparse_attention_forward`] needs: where tokens are, or nothing if that is everywhere."""
    if attention_mask is None or (not torch.compiler.is_compiling() and bool(attention_mask.all())):
        return None
    return attention_mask.bool()


AttentionInterface.register(SPARSE_IMPLEMENTATION, sparse_attention_forward)
AttentionMaskInterface.register(SPARSE_IMPLEMENTATION, sparse_attention_mask)


def create_mask(
    config: ElasticConfig,
    pattern: WindowPattern | None,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
) -> torch.Tensor | None:
    """Gives a layer's mask in the form that the attention implementation takes.

    Args:
        config ([`ElasticConfig`]):
            Configuration of the model, with its attention implementation.
        pattern ([`WindowPattern`], *optional*):
            What the layer sees, if that is less than everything.
        hidden_states (`torch.Tensor` of shape `(batch, length, hidden_size)`):
            Embeddings of the batch.
        attention_mask (`torch.Tensor` of shape `(batch, length)`, *optional*):
            1 for tokens, 0 for padding.
    """
    arguments = {"config": config, "inputs_embeds": hidden_states, "attention_mask": attention_mask}
    if pattern is None:
        return create_bidirectional_mask(**arguments)
    if config._attn_implementation != SPARSE_IMPLEMENTATION and (
        pattern.num_global_tokens or pattern.num_random_blocks
    ):
        visible = pattern.dense_mask(hidden_states.shape[1], hidden_states.device)
        arguments["or_mask_function"] = lambda batch, head, query, key: visible[query, key]
    return create_bidirectional_sliding_window_mask(**arguments)


def window_pattern(config: ElasticConfig, layer: int) -> WindowPattern | None:
    """Gives what a layer sees, if that is the same for all inputs of one length and less than everything."""
    if config.layer_types[layer] != "sliding_attention":
        return None
    return WindowPattern(
        window=config.sliding_window,
        num_global_tokens=config.num_global_tokens,
        num_random_blocks=config.num_random_blocks,
        block_size=config.attention_block_size,
        seed=config.random_block_seeds[layer] if config.num_random_blocks else 0,
    )


def block_pattern(config: ElasticConfig) -> BlockPattern:
    """Gives how block-sparse layers cut an input into blocks: in wider blocks of queries if it may be long."""
    is_long = config.max_position_embeddings >= LONG_INPUT * config.attention_block_size
    return BlockPattern(
        block_size=config.attention_block_size,
        num_global_tokens=config.num_global_tokens,
        span=4 if is_long else 2,
        dense_fallback=config.dense_fallback,
    )


class ElasticAttention(nn.Module):
    """Bidirectional self-attention that can run with its leading heads alone."""

    def __init__(self, config: ElasticConfig, size: LayerSize):
        super().__init__()
        self.config = config
        self.layer_idx = size.layer
        self.layer_type = config.layer_types[size.layer]
        self.num_attention_heads = size.num_attention_heads
        self.head_dim = config.head_dim
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_probs_dropout_prob
        self.is_causal = False
        inner_size = self.num_attention_heads * self.head_dim
        self.q_proj = ElasticLinear(config.hidden_size, inner_size, bias=config.attention_bias)
        self.k_proj = ElasticLinear(config.hidden_size, inner_size, bias=config.attention_bias)
        self.v_proj = ElasticLinear(config.hidden_size, inner_size, bias=config.attention_bias)
        self.o_proj = ElasticLinear(inner_size, config.hidden_size, bias=config.attention_bias)
        self.pattern = window_pattern(config, size.layer)
        self.blocks = block_pattern(config)
        if self.layer_type == "block_sparse_attention":
            self.sparsity_logit = nn.Parameter(torch.empty(self.num_attention_heads))

    def sparsity(self, num_attention_heads: int | None = None) -> torch.Tensor:
        """Part of the blocks that each of the leading heads leaves out: a tensor of shape `(heads,)` in (0, 1)."""
        return (SPARSITY_SCALE * self.sparsity_logit[:num_attention_heads]).sigmoid()

    def runs_dense(self, length: int) -> bool:
        """Whether an input is so short that all blocks are computed."""
        if self.layer_type == "sliding_attention":
            return self.config.dense_fallback and window_prefers_dense(length, self.pattern)
        # A length that is traced is no number; the sparse computation keeps all blocks of short inputs as well.
        return self.layer_type == "block_sparse_attention" and (
            isinstance(length, int) and length < self.blocks.dense_below
        )

    @property
    def counts_positions(self) -> bool:
        """Whether what the layer sees depends on where a sequence begins, so that padding may only follow it."""
        fixed = self.pattern is not None and (self.pattern.num_global_tokens or self.pattern.num_random_blocks)
        return bool(fixed) or self.layer_type == "block_sparse_attention"

    @torch.no_grad()
    def init_sparsity(self) -> None:
        """Lets every head begin with the sparsity that the configuration says; for `_init_weights`."""
        init.constant_(self.sparsity_logit, sparsity_logit(self.config.attention_sparsity) / SPARSITY_SCALE)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        num_attention_heads: int | None = None,
        padding_mask: torch.Tensor | None = None,
        angles: tuple[torch.Tensor, torch.Tensor] | None = None,
        unpadding: Unpadding | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        heads = self.num_attention_heads if num_attention_heads is None else num_attention_heads
        rows = leading(heads * self.head_dim, self.q_proj.out_features)
        input_shape = hidden_states.shape[:-1]
        head_shape = (*input_shape, -1, self.head_dim)
        query = self.q_proj(hidden_states, **rows).view(head_shape).transpose(1, 2)
        key = self.k_proj(hidden_states, **rows).view(head_shape).transpose(1, 2)
        value = self.v_proj(hidden_states, **rows).view(head_shape).transpose(1, 2)
        if angles is not None:
            query, key = rotate(query, angles), rotate(key, angles)
        if unpadding is None:
            context, weights = self.attend(query, key, value, attention_mask, padding_mask, **kwargs)
        else:
            context, weights = self.attend_unpadded(query, key, value, unpadding, **kwargs)
        context = context.reshape(*input_shape, -1)
        return self.o_proj(context, **leading(hidden_states.shape[-1], self.o_proj.out_features)), weights

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        padding_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Computes the context of shape `(batch, length, heads, head_dim)` with the chosen implementation."""
        implementation = self.config._attn_implementation
        if self.layer_type == "linear_attention" and implementation == "eager":
            weights = linear_attention_weights(query, key, padding_mask)
            return (weights @ value).transpose(1, 2), weights
        if self.layer_type == "linear_attention":
            return linear_attention(query, key, value, padding_mask).transpose(1, 2), None
        if self.layer_type == "block_sparse_attention" and implementation != "eager":
            # Which blocks are kept depends on queries and keys: other implementations have no mask to say so.
            implementation, attention_mask = SPARSE_IMPLEMENTATION, padding_mask
        elif self.layer_type == "block_sparse_attention":
            sparsity = self.sparsity(query.shape[1])
            attention_mask = block_bias(query, key, padding_mask, sparsity, self.blocks, self.scaling, self.training)
        attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        return attention_interface(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            # Flash attention's, whose ends are exclusive; the others read the mask.
            sliding_window=None if self.pattern is None else self.pattern.window + 1,
            **kwargs,
        )

    def attend_unpadded(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        unpadding: Unpadding,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Computes the context of shape `(1, tokens, heads, head_dim)` for sequences without padding."""
        flash = is_flash_attention_requested(self.config)
        if flash and self.layer_type in ("full_attention", "sliding_attention"):
            return self.attend(query, key, value, None, **unpadding.flash_arguments(), **kwargs)
        if self.layer_type == "linear_attention":
            return unpadding.attend(lambda *states: linear_attention(*states).transpose(1, 2), query, key, value), None
        dropout = self.attention_dropout if self.training else 0.0
        is_plain = self.pattern is None or not (self.pattern.num_global_tokens or self.pattern.num_random_blocks)
        if self.layer_type != "block_sparse_attention" and is_plain and can_attend_in_one_kernel(query, dropout):
            window = None if self.pattern is None else self.pattern.window
            return unpadding.attend_in_one_kernel(query, key, value, self.scaling, window), None
        return unpadding.attend(
            lambda *states: sparse_attention_forward(self, *states, None, self.scaling, dropout)[0], query, key, value
        ), None


__all__ = ["ElasticAttention", "create_mask", "sparse_attention_mask"]
