"""Attention of query blocks to listed key blocks, forward and backward, as one operator.

What is distinctive: a query block of one head of one row is a tile, the unit of work. Tiles that attend to the same
number of key blocks run together, a few at a time: nothing is masked for being left out, and memory is linear in the
length. The backward pass computes the probabilities again, as FlashAttention does (Dao et al. 2022,
https://arxiv.org/abs/2205.14135), and adds to the gradients of keys and values block by block, where the chain rule
through the gathered blocks would write gradients of full size for each group of tiles.

It is an operator because the numbers of blocks are data: `torch.compile` keeps it in one graph without looking inside.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn.functional import pad, scaled_dot_product_attention

# Keys that a group of tiles loads. On a CPU they have to stay in its cache, elsewhere they make for large products.
CPU_KEYS, DEVICE_KEYS = 2**12, 2**18
# The operators' namespace. The package and every checkpoint's copy of this file are modules of different names.
NAMESPACE = re.sub(r"\W", "_", __name__)


class _Group(NamedTuple):
    """Consecutive tiles with the same number of key blocks, and what they attend to."""

    tiles: slice
    blocks: Tensor  # (tiles * count,), indices of the key blocks
    key: Tensor  # (tiles, keys, head_dim)
    value: Tensor  # likewise, weighted
    weight: Tensor | None  # (tiles, keys, 1)
    bias: Tensor | None  # (tiles, 1, keys)


class _Tiles:
    """All tiles of a call, sorted by their number of key blocks. Arguments as in [`attend_blocks`].

    States of shape `(batch, heads, length, head_dim)` become blocks of shape `(blocks, size, head_dim)`.
    """

    def __init__(
        self,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None,
        order: Tensor,
        kept: Tensor,
        last_log_gate: Tensor | None,
        key_kept: Tensor | None,
        dropout: float,
        query_size: int,
        key_size: int,
    ):
        batch_size, num_heads, self.length, _ = key.shape
        num_blocks = order.shape[-1]
        self.query_size, self.key_size, self.dropout = query_size, key_size, dropout
        self.dtype = _product_dtype(value)
        self.key, self.value = self.cut(key, key_size), self.cut(value, key_size)
        counts, tiles = kept.flatten().sort(stable=True)
        self.counts, self.sizes = (numbers.tolist() for numbers in counts.unique_consecutive(return_counts=True))
        self.permutation = tiles if len(self.counts) > 1 else None
        first_blocks = torch.arange(batch_size * num_heads, device=key.device) * num_blocks
        self.order = self.sort((order + first_blocks.view(batch_size, num_heads, 1, 1)).flatten(0, 2))
        self.last_log_gate = None if last_log_gate is None else self.sort(last_log_gate.flatten()).to(self.dtype)
        self.key_kept = None if key_kept is None else self.sort(key_kept.flatten(0, 2))
        self.key_bias = None
        if key_mask is not None or self.length % key_size:
            key_mask = key.new_ones(1, self.length, dtype=torch.bool) if key_mask is None else key_mask
            absent = ~pad(key_mask, (0, num_blocks * key_size - self.length))
            bias = torch.zeros_like(absent, dtype=self.dtype).masked_fill(absent, torch.finfo(self.dtype).min)
            self.key_bias = bias[:, None].expand(batch_size, num_heads, -1).reshape(-1, key_size)
        self.rooms: dict[str, Tensor] = {}

    def cut(self, states: Tensor, size: int) -> Tensor:
        """Gives blocks in the dtype of the products, zeros after the end."""
        missing = -self.length % size
        if not missing:
            return states.to(self.dtype).reshape(-1, size, states.shape[-1])
        blocks = states.new_zeros(*states.shape[:2], self.length + missing, states.shape[-1], dtype=self.dtype)
        blocks[:, :, : self.length] = states
        return blocks.view(-1, size, states.shape[-1])

    def cut_queries(self, states: Tensor) -> Tensor:
        """Gives query blocks in the order of the tiles."""
        return self.sort(self.cut(states, self.query_size))

    def join(self, blocks: Tensor, like: Tensor) -> Tensor:
        """Undoes [`cut`]."""
        states = blocks.view(*like.shape[:2], -1, like.shape[-1])[:, :, : self.length]
        return states.to(like.dtype).contiguous()

    def sort(self, tiles: Tensor) -> Tensor:
        return tiles if self.permutation is None else tiles[self.permutation]

    def unsort(self, tiles: Tensor) -> Tensor:
        return tiles if self.permutation is None else torch.empty_like(tiles).index_copy_(0, self.permutation, tiles)

    def groups(self) -> Iterator[_Group]:
        """Loads the tiles group by group, each group into the memory of the one before."""
        limit = CPU_KEYS if self.key.device.type == "cpu" else DEVICE_KEYS
        end = 0
        for count, size in zip(self.counts, self.sizes, strict=True):
            start, end = end, end + size
            step = max(1, limit // (count * self.key_size))
            for first in range(start, end, step):
                yield self._load(slice(first, min(first + step, end)), count)

    def _load(self, tiles: slice, count: int) -> _Group:
        blocks = self.order[tiles, :count].flatten()
        num_tiles, num_keys = tiles.stop - tiles.start, count * self.key_size
        key, value = (self.room(name, num_tiles, num_keys, self.key.shape[-1]) for name in ("key", "value"))
        torch.index_select(self.key, 0, blocks, out=key.view(-1, *self.key.shape[1:]))
        torch.index_select(self.value, 0, blocks, out=value.view(-1, *self.key.shape[1:]))
        bias = weight = None
        if self.key_bias is not None:
            bias = self.key_bias[blocks].view(num_tiles, 1, num_keys)
        if self.last_log_gate is not None:
            bias = key.new_zeros(num_tiles, 1, num_keys) if bias is None else bias
            bias[..., -self.key_size :] += self.last_log_gate[tiles, None, None]
        if self.key_kept is not None:
            weight = self.key_kept[tiles, :count].reshape(num_tiles, num_keys, 1).to(self.dtype) / (1 - self.dropout)
            value *= weight
        return _Group(tiles, blocks, key, value, weight, bias)

    def room(self, name: str, *shape: int) -> Tensor:
        """Gives memory of a name, which is asked of the system once."""
        size = math.prod(shape)
        if name not in self.rooms or self.rooms[name].numel() < size:
            self.rooms[name] = self.key.new_empty(size)
        return self.rooms[name][:size].view(shape)


def _product_dtype(value: Tensor) -> torch.dtype:
    """Gives the dtype of the products: on a CPU float32 for half precision, which crawls where the CPU lacks it."""
    if value.device.type == "cpu" and value.dtype in (torch.bfloat16, torch.float16):
        return torch.float32
    return value.dtype


@torch.library.custom_op(f"{NAMESPACE}::attend_blocks", mutates_args=())
def attend_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    order: Tensor,
    kept: Tensor,
    last_log_gate: Tensor | None,
    key_kept: Tensor | None,
    dropout: float,
    scaling: float,
    query_size: int,
    key_size: int,
) -> Tensor:
    """Softmax attention of each query block to the first of the key blocks in its list.

    Args:
        query, key, value: Need not be contiguous. All three and `last_log_gate` get gradients.
        key_mask: True for keys that exist. None means all.
        order: For each query block the indices of all key blocks, the most important first.
        kept: How many of them the query block attends to, at least 1.
        last_log_gate: What is added to the scores of the last of these. None is nothing.
        key_kept: False for keys in the order of the list that dropout drops. None drops nothing.
        dropout: The probability with which it was drawn.
        scaling: Factor of the scores.
        query_size: Queries in a block.
        key_size: Keys in a block.

    Shape:
        query, key, value, output: `(batch, heads, length, head_dim)`; key_mask: `(batch, length)`; order: `(batch,
        heads, query blocks, key blocks)`; kept, last_log_gate: `(batch, heads, query blocks)`; key_kept: `(batch,
        heads, query blocks, key blocks, key_size)`.
    """
    tiles = _Tiles(key, value, key_mask, order, kept, last_log_gate, key_kept, dropout, query_size, key_size)
    with torch.autocast(query.device.type, enabled=False):
        queries = tiles.cut_queries(query)
        output = torch.empty_like(queries)
        for group in tiles.groups():
            bias = None if group.bias is None else group.bias[:, None]
            inputs = queries[group.tiles, None], group.key[:, None], group.value[:, None], bias
            output[group.tiles] = scaled_dot_product_attention(*inputs, scale=scaling)[:, 0]
    return tiles.join(tiles.unsort(output), value)


@attend_blocks.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *arguments: Tensor | float | None) -> Tensor:
    return value.new_empty(value.shape)


@torch.library.custom_op(f"{NAMESPACE}::attend_blocks_backward", mutates_args=())
def _attend_blocks_backward(
    grad_output: Tensor,
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    order: Tensor,
    kept: Tensor,
    last_log_gate: Tensor | None,
    key_kept: Tensor | None,
    dropout: float,
    scaling: float,
    query_size: int,
    key_size: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tiles = _Tiles(key, value, key_mask, order, kept, last_log_gate, key_kept, dropout, query_size, key_size)
    with torch.autocast(query.device.type, enabled=False):
        queries, grads = tiles.cut_queries(query), tiles.cut_queries(grad_output)
        # The sum over keys of probability times its gradient, which the softmax's gradient subtracts.
        offsets = -(grads * tiles.cut_queries(output)).sum(dim=-1, keepdim=True)
        grad_query, grad_gate = torch.empty_like(queries), query.new_zeros(len(queries), dtype=torch.float32)
        grad_key, grad_value = (torch.zeros_like(blocks) for blocks in (tiles.key, tiles.value))
        no_bias = queries.new_zeros(1, 1, 1)
        for group in tiles.groups():
            tile_queries, tile_grads = queries[group.tiles], grads[group.tiles]
            shape = (*tile_queries.shape[:2], group.key.shape[1])
            weights, grad_scores = tiles.room("weights", *shape), tiles.room("grad_scores", *shape)
            grad_states = tiles.room("grad_states", *group.key.shape)

            bias = no_bias if group.bias is None else group.bias
            torch.baddbmm(bias, tile_queries, group.key.mT, alpha=scaling, out=weights)
            torch.softmax(weights, dim=-1, out=weights)
            torch.baddbmm(offsets[group.tiles], tile_grads, group.value.mT, out=grad_scores)
            grad_scores *= weights
            if last_log_gate is not None:
                grad_gate[group.tiles] = grad_scores[..., -key_size:].sum(dim=(1, 2))

            torch.bmm(weights.mT, tile_grads, out=grad_states)
            if group.weight is not None:
                grad_states *= group.weight
            grad_value.index_add_(0, group.blocks, grad_states.view(-1, *grad_value.shape[1:]))
            torch.bmm(grad_scores.mT, tile_queries, out=grad_states)
            grad_key.index_add_(0, group.blocks, grad_states.view(-1, *grad_key.shape[1:]))
            torch.bmm(grad_scores, group.key, out=grad_query[group.tiles])
    return (
        tiles.join(tiles.unsort(grad_query.mul_(scaling)), query),
        tiles.join(grad_key.mul_(scaling), key),
        tiles.join(grad_value, value),
        tiles.unsort(grad_gate).view(kept.shape),
    )


@_attend_blocks_backward.register_fake
def _(
    grad_output: Tensor,
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    order: Tensor,
    kept: Tensor,
    *arguments: Tensor | float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grads = (states.new_empty(states.shape) for states in (query, key, value))
    return *grads, kept.new_empty(kept.shape, dtype=torch.float32)


def _setup_context(ctx: FunctionCtx, inputs: tuple[Tensor | float | None, ...], output: Tensor) -> None:
    *tensors, ctx.dropout, ctx.scaling, ctx.query_size, ctx.key_size = inputs
    ctx.has_gates = inputs[6] is not None
    ctx.save_for_backward(output, *tensors)


def _backward(ctx: FunctionCtx, grad_output: Tensor) -> tuple[Tensor | None, ...]:
    sizes = ctx.dropout, ctx.scaling, ctx.query_size, ctx.key_size
    *grads, grad_gate = _attend_blocks_backward(grad_output, *ctx.saved_tensors, *sizes)
    return *grads, None, None, None, grad_gate if ctx.has_gates else None, None, *(None for _ in sizes)


attend_blocks.register_autograd(_backward, setup_context=_setup_context)


__all__ = ["attend_blocks"]
