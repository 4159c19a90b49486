"""Dynamic block-sparse attention with a learnable sparsity per head.

What is distinctive: a head's sparsity is one number that gets a gradient, and no score outside the blocks that a head
selects is ever computed, in training either.

- Keys are cut into blocks, queries into blocks that span two or more of those. Each query block of each head ranks the
  key blocks: first those that hold its own positions and those that hold global tokens, in order of position, then the
  others by similarity, the scaled product of the two blocks' mean vectors. Padding is left out of the means; blocks of
  padding only come last and are never kept. SpargeAttention (Zhang et al. 2025, https://arxiv.org/abs/2502.18137)
  predicts scores from the means of both sides in trained models, MoBA (Lu et al. 2025,
  https://arxiv.org/abs/2502.13189) and NSA (Yuan et al. 2025, https://arxiv.org/abs/2502.11089) train with a fixed
  number of key blocks for each query; BigBird (Zaheer et al. 2020, https://arxiv.org/abs/2007.14062) keeps local and
  global blocks.
- Where n key blocks hold tokens, a head of sparsity s has the budget k = (1 - s) n. In evaluation it attends to the
  first round(k) blocks, halves rounded up, but always to its own and the global ones, and to one at least.
- In training the block of rank r = 0, 1, ... has the gate k - r, clipped to [0, 1], which multiplies the exponentials
  of its scores: the ramp of adaptive spans (Sukhbaatar et al. 2019, https://arxiv.org/abs/1905.07799), one block wide.
  Evaluation keeps the blocks whose gate is at least 0.5. So only the last of ceil(k) blocks is gated; it gives the
  sparsity its gradient wherever k lies, and training computes nothing beyond it, where a sigmoid would either need
  more blocks or be flat between two of them. Sparsity 0 is full attention in training as well.
- Blocks that are always kept are not gated: a head gets no gradient from a query block where they exceed its budget.
- A text that is so short that dense attention is as fast keeps all its blocks. All of this depends on the text's own
  length, not on what it is padded to, so that its output does not depend on the batch that it is in.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

from .attend_blocks_elastic import attend_blocks

# In key blocks. Shorter inputs take as long as dense attention, or longer (one core, 12 heads of 64).
DENSE_INPUT = 6
FLEX_BLOCK_SIZES = (16, 32, 64, 128)  # that FlexAttention's kernels can do


@dataclass(frozen=True)
class BlockPattern:
    """How queries and keys are cut into blocks, and which blocks need no selection.

    Args:
        block_size (`int`, defaults to 64):
            Keys in a block.
        num_global_tokens (`int`, defaults to 0):
            That many first positions are global: their blocks are always kept.
        span (`int`, defaults to 2):
            Key blocks that a query block spans. Four run 10% faster than two, but more queries share a selection, and
            in short inputs their own blocks are most of the budget.
        dense_fallback (`bool`, defaults to `False`):
            Whether texts that are so short that dense attention is as fast keep all blocks.

    Raises:
        ValueError: If a size is not positive, or a number negative.
    """

    block_size: int = 64
    num_global_tokens: int = 0
    span: int = 2
    dense_fallback: bool = False

    def __post_init__(self) -> None:
        for name, smallest in (("block_size", 1), ("num_global_tokens", 0), ("span", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < smallest:
                raise ValueError(f"{name}={value!r} is not possible: give a whole number of at least {smallest}.")

    @property
    def query_size(self) -> int:
        """Queries in a block."""
        return self.span * self.block_size

    @property
    def num_global_blocks(self) -> int:
        """Key blocks that hold global tokens."""
        return -(-self.num_global_tokens // self.block_size)

    @property
    def dense_below(self) -> int:
        """Number of tokens from which a text is computed sparsely."""
        return (DENSE_INPUT + self.num_global_blocks) * self.block_size if self.dense_fallback else 0


class BlockSelection(NamedTuple):
    """The key blocks of each query block.

    Shape:
        order: `(batch, heads, query blocks, key blocks)`, indices of key blocks, the most important first.
        kept: `(batch, heads, query blocks)`, how many of them are kept.
        last_log_gate: likewise, float32, the logarithm of the last one's gate; those before it are not gated.
    """

    order: Tensor
    kept: Tensor
    last_log_gate: Tensor


def block_sparse_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding_mask: Tensor | None,
    sparsity: Tensor,
    pattern: BlockPattern,
    scaling: float,
    dropout: float = 0.0,
    training: bool = False,
) -> Tensor:
    """Attends to the key blocks that each head selects, see the module's description.

    Equals softmax attention with the bias of [`block_bias`]. Memory is linear in the length, but for one number per
    query block and key block, or per query block and key with dropout. Under `torch.compile` it stays in one graph.

    Args:
        query, key, value: Need not be contiguous.
        padding_mask: True for tokens, False for padding, on either side. None means no padding.
        sparsity: Part of the blocks that each head leaves out, in [0, 1). Gets a gradient in training.
        pattern: How queries and keys are cut into blocks.
        scaling: Factor of the scores, usually `head_dim ** -0.5`.
        dropout: Probability that training drops a key for all queries of a block together (DropAttention, Zehui et
            al. 2019, https://arxiv.org/abs/1907.11065). One draw for each weight would take a CPU as long as the
            attention itself.
        training: Whether to gate softly and to drop.

    Shape:
        query, key, value, output: `(batch, heads, length, head_dim)`; padding_mask: `(batch, length)`; sparsity:
        `(heads,)`. The output is finite at padding as well.

    Example:
        >>> query, key, value = torch.randn(3, 2, 4, 1000, 64)
        >>> block_sparse_attention(query, key, value, None, torch.full((4,), 0.7), BlockPattern(), 0.125).shape
        torch.Size([2, 4, 1000, 64])
    """
    order, kept, last_log_gate = select_blocks(query, key, padding_mask, sparsity, pattern, scaling, training)
    if not training and _flex_is_faster(query, pattern.block_size):
        return flex_block_attention(query, key, value, padding_mask, order, kept, pattern, scaling)
    key_kept = None
    if training and dropout:
        key_kept = torch.rand(*order.shape, pattern.block_size, device=query.device) >= dropout
    return attend_blocks(
        query,
        key,
        value,
        padding_mask,
        order,
        kept,
        last_log_gate if training else None,
        key_kept,
        float(dropout),
        float(scaling),
        pattern.query_size,
        pattern.block_size,
    )


def block_bias(
    query: Tensor,
    key: Tensor,
    padding_mask: Tensor | None,
    sparsity: Tensor,
    pattern: BlockPattern,
    scaling: float,
    training: bool = False,
) -> Tensor:
    """Writes the selection out as what dense attention adds to its scores: the definition, quadratic in the length.

    Args and shapes as in [`block_sparse_attention`].

    Returns:
        `Tensor` of shape `(batch, heads, length, length)` in the dtype of `query`: 0 for keys that are kept, the
        logarithm of the gate in training, and the dtype's minimum for other keys and padding.
    """
    order, kept, last_log_gate = select_blocks(query, key, padding_mask, sparsity, pattern, scaling, training)
    last = kept[..., None] - 1
    rank = torch.arange(order.shape[-1], device=order.device)
    by_rank = torch.where(rank == last, last_log_gate[..., None], 0.0).masked_fill(rank > last, -torch.inf)
    by_block = torch.zeros_like(by_rank).scatter(-1, order, by_rank)
    positions = torch.arange(query.shape[2], device=query.device)
    bias = by_block[:, :, positions // pattern.query_size][..., positions // pattern.block_size]
    if padding_mask is not None:
        bias = bias.masked_fill(~padding_mask[:, None, None], -torch.inf)
    return bias.clamp(min=torch.finfo(query.dtype).min).to(query.dtype)


def select_blocks(
    query: Tensor,
    key: Tensor,
    padding_mask: Tensor | None,
    sparsity: Tensor,
    pattern: BlockPattern,
    scaling: float,
    training: bool,
) -> BlockSelection:
    """Ranks the key blocks and cuts the ranking by the heads' budgets; only `sparsity` gets a gradient.

    Arguments as in [`block_sparse_attention`].
    """
    query, key = query.detach(), key.detach()
    order, num_filled, num_first = _rank_blocks(query, key, padding_mask, pattern, scaling)
    num_filled = num_filled[:, None, None]  # (batch or 1, 1, 1)
    num_first = num_first[:, None].clamp(min=1)  # (batch or 1, 1, query blocks)
    budget = (1 - sparsity.float()[:, None]) * num_filled  # (batch or 1, heads, 1)
    num_tokens = query.shape[2] if padding_mask is None else padding_mask.sum(dim=-1)[:, None, None]
    budget = torch.where(torch.as_tensor(num_tokens < pattern.dense_below, device=query.device), num_filled, budget)
    kept = torch.maximum((budget.ceil() if training else (budget + 0.5).floor()).long(), num_first)
    is_gated = (kept > num_first) & training
    last_log_gate = torch.where(is_gated, budget - kept + 1, 1.0).log()
    shape = order.shape[:3]
    return BlockSelection(order, kept.expand(shape), last_log_gate.expand(shape))


def _rank_blocks(
    query: Tensor, key: Tensor, padding_mask: Tensor | None, pattern: BlockPattern, scaling: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gives the order, the number of key blocks of a row that hold tokens, and of those among them that come first."""
    block_size = pattern.block_size
    pooled_query, pooled_key = _pool(query, padding_mask, pattern.query_size), _pool(key, padding_mask, block_size)
    with torch.autocast(query.device.type, enabled=False):
        similarity = pooled_query @ pooled_key.mT * scaling
    query_blocks, key_blocks = (torch.arange(size, device=query.device) for size in similarity.shape[2:])
    is_global = key_blocks * block_size < pattern.num_global_tokens
    comes_first = (query_blocks[:, None] == key_blocks // pattern.span) | is_global
    is_filled = torch.ones_like(key_blocks, dtype=torch.bool)[None]
    if padding_mask is not None:
        is_filled = _cut(padding_mask, 1, block_size).any(dim=-1)
    similarity = similarity.masked_fill(comes_first, torch.inf).masked_fill(~is_filled[:, None, None], -torch.inf)
    order = similarity.sort(dim=-1, descending=True, stable=True).indices
    return order, is_filled.sum(dim=-1), (comes_first & is_filled[:, None]).sum(dim=-1)


def _pool(states: Tensor, padding_mask: Tensor | None, size: int) -> Tensor:
    """Means in float32 of the tokens of each block, 0 for blocks without any."""
    if padding_mask is None:
        is_token = states.new_ones(1, 1, states.shape[2], 1, dtype=torch.bool)
    else:
        is_token = padding_mask[:, None, :, None]
        states = states * is_token
    num_tokens = _cut(is_token, 2, size).sum(dim=3).clamp(min=1)
    return _cut(states, 2, size).sum(dim=3, dtype=torch.float32) / num_tokens


def _cut(states: Tensor, dim: int, size: int) -> Tensor:
    """Cuts a dimension into blocks of equal size, the last one filled up with zeros."""
    missing = -states.shape[dim] % size
    if missing:
        states = pad(states, (0, 0) * (states.dim() - 1 - dim) + (0, missing))
    return states.unflatten(dim, (-1, size))


def flex_block_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding_mask: Tensor | None,
    order: Tensor,
    kept: Tensor,
    pattern: BlockPattern,
    scaling: float,
) -> Tensor:
    """Hard selection through FlexAttention, whose block mask is the selection: `torch.compile` makes it one kernel."""
    length, query_size, block_size = query.shape[2], pattern.query_size, pattern.block_size
    is_kept = order.argsort(dim=-1) < kept[..., None]  # (batch, heads, query blocks, key blocks)

    def sees(row: Tensor, head: Tensor, query_position: Tensor, key_position: Tensor) -> Tensor:
        is_seen = is_kept[row, head, query_position // query_size, key_position // block_size]
        return is_seen if padding_mask is None else is_seen & padding_mask[row, key_position]

    counts, indices = kept.int(), is_kept.int().argsort(dim=-1, descending=True, stable=True).int()
    # Without padding the kernel need not ask `sees` about single positions: kept blocks are full.
    blocks = (counts, indices) if padding_mask is not None else (torch.zeros_like(counts), indices, counts, indices)
    block_mask = BlockMask.from_kv_blocks(
        *blocks, BLOCK_SIZE=(query_size, block_size), mask_mod=sees, seq_lengths=(length, length)
    )
    # The sizes of the kernel's own blocks have to divide those of the mask, which their defaults do not.
    options = {"BLOCK_M": min(query_size, 64), "BLOCK_N": min(block_size, 64), "FORCE_USE_FLEX_ATTENTION": True}
    return flex_attention(query, key, value, block_mask=block_mask, scale=scaling, kernel_options=options)


def _flex_is_faster(query: Tensor, block_size: int) -> bool:
    """Without `torch.compile` FlexAttention computes all scores, and on a CPU it is slower."""
    is_possible = block_size in FLEX_BLOCK_SIZES and query.shape[-1] >= 16 and not torch.is_grad_enabled()
    return torch.compiler.is_compiling() and query.is_cuda and is_possible


def sparsity_logit(sparsity: float) -> float:
    """Gives the parameter of a head's sparsity; `torch.sigmoid` gives the sparsity back.

    It is minus infinity for a sparsity of 0, and no gradient moves it from there: the head stays dense.

    Raises:
        ValueError: If the sparsity lies outside [0, 1).
    """
    if not 0 <= sparsity < 1:
        raise ValueError(
            f"sparsity={sparsity!r} must lie in [0, 1): it is the part of the key blocks that a head leaves out; 0 is "
            "full attention."
        )
    return math.log(sparsity) - math.log1p(-sparsity) if sparsity else -math.inf


def sparsity_penalty(sparsities: Tensor, target: float) -> Tensor:
    """Mean squared distance of the heads' sparsities `(heads,)` to a target: a scalar to add to the loss."""
    return (sparsities - target).square().mean()


__all__ = ["BlockPattern", "block_bias", "block_sparse_attention", "sparsity_logit", "sparsity_penalty"]
