"""Attention of query blocks to listed key blocks, forward and backward, as one operator.

What is distinctive: a query block of one head of one example is a tile, the unit of work. Tiles that attend to the
same number of key blocks run together, a few at a time: nothing is masked for being left out, and memory is linear in
the length. Queries and keys are gathered from where projections leave them, so that no state is transposed or padded
as a whole. The backward pass computes the probabilities again, as FlashAttention does (Dao et al. 2022,
https://arxiv.org/abs/2205.14135), and adds to the gradients of keys and values block by block.

It is an operator because the numbers of blocks are data: `torch.compile` keeps it in one graph without looking inside.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn.functional import scaled_dot_product_attention

# Keys that a group of tiles gathers. On a CPU they have to stay in its cache, elsewhere they make for large products.
CPU_KEYS, DEVICE_KEYS = 2**12, 2**18
LOG2_E = math.log2(math.e)
# The operators' namespace. The package and every checkpoint's copy of this file are modules of different names.
NAMESPACE = re.sub(r"\W", "_", __name__)


class _Group(NamedTuple):
    """Tiles that attend to the same number of key blocks, as indices."""

    tiles: Tensor  # (tiles,)
    query_rows: Tensor  # (tiles * queries,)
    key_blocks: Tensor  # (tiles * count,)
    key_rows: Tensor  # (tiles * keys,)
    is_repeat: Tensor | None  # (tiles, queries, 1), where queries after the end repeat the last one
    bias: Tensor | None  # (tiles, 1, keys), added to the scores
    weight: Tensor | None  # (tiles, keys, 1), factors of the values


class _Tiles:
    """All tiles of a call, and the memory they work in. Arguments as in [`attend_blocks`].

    Rows are the vectors `(batch * length * heads, head_dim)` of a state `(batch, heads, length, head_dim)`, as they
    lie in memory: by position and head, as projections leave them, or by head and position if it is contiguous.
    """

    def __init__(
        self,
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
        batch_size, num_heads, self.length, self.head_dim = value.shape
        self.query_size, self.key_size, self.dropout = query_size, key_size, dropout
        self.dtype, self.heads_first = _product_dtype(value), value.is_contiguous()
        self.lowest = torch.finfo(self.dtype).min / 2  # finite in any base of the exponential
        self.kept = kept.flatten()
        self.last_log_gate = None if last_log_gate is None else last_log_gate.flatten().to(self.dtype)
        self.key_kept = None if key_kept is None else key_kept.flatten(0, 2)

        # The rows of each tile's first query, of the first key in each of its blocks, and of its last key.
        stride, head_stride = (1, self.length) if self.heads_first else (num_heads, 1)
        examples, heads, query_blocks = (torch.arange(size, device=value.device) for size in kept.shape)
        first_rows = examples[:, None, None] * num_heads * self.length + heads[:, None] * head_stride
        self.query_starts = (first_rows + query_blocks * query_size * stride).flatten()
        self.key_starts = (first_rows[..., None] + order * key_size * stride).flatten(0, 2)
        self.last_rows = (first_rows + (self.length - 1) * stride).expand_as(kept).flatten()[:, None]
        self.query_steps = torch.arange(query_size, device=value.device) * stride
        self.key_steps = torch.arange(key_size, device=value.device) * stride
        self.key_blocks = (order + (examples[:, None] * num_heads + heads)[..., None, None] * order.shape[-1]).flatten(
            0, 2
        )
        self.key_bias = None
        if key_mask is not None:
            bias = torch.zeros_like(value[..., :1], dtype=self.dtype)
            self.key_bias = self.rows(bias.masked_fill_(~key_mask[:, None, :, None], self.lowest)).flatten()
        self.rooms: dict[str, Tensor] = {}

    def rows(self, state: Tensor) -> Tensor:
        """Gives the rows of a state in the dtype of the products, a view where that and the order are its own."""
        return (state if self.heads_first else state.transpose(1, 2)).to(self.dtype).reshape(-1, state.shape[-1])

    def state(self, rows: Tensor, like: Tensor) -> Tensor:
        """Gives rows as a state, in shape and dtype like another one."""
        batch_size, num_heads, length, head_dim = like.shape
        if self.heads_first:
            return rows.to(like.dtype).view(like.shape)
        return rows.to(like.dtype).view(batch_size, length, num_heads, head_dim).transpose(1, 2)

    def join(self, blocks: Tensor, like: Tensor) -> Tensor:
        """Gives blocks of all heads as a contiguous state, without what is after the end."""
        batch_size, num_heads, length, head_dim = like.shape
        return blocks.view(batch_size, num_heads, -1, head_dim)[:, :, :length].to(like.dtype).contiguous()

    def groups(self) -> Iterator[_Group]:
        counts, tiles = self.kept.sort(stable=True)
        counts, sizes = counts.unique_consecutive(return_counts=True)
        limit = CPU_KEYS if tiles.device.type == "cpu" else DEVICE_KEYS
        for count, equal in zip(counts.tolist(), tiles.split(sizes.tolist()), strict=True):
            for part in equal.split(max(1, limit // (count * self.key_size))):
                yield self._group(part, count)

    def _group(self, tiles: Tensor, count: int) -> _Group:
        num_tiles, num_keys, last_rows = len(tiles), count * self.key_size, self.last_rows[tiles]
        query_rows = self.query_starts[tiles, None] + self.query_steps
        key_rows = (self.key_starts[tiles, :count, None] + self.key_steps).flatten(1)
        is_repeat = bias = weight = None
        if self.length % self.query_size:
            is_repeat = (query_rows > last_rows)[..., None]
            query_rows = query_rows.minimum(last_rows)
        if self.last_log_gate is not None or self.key_bias is not None or self.length % self.key_size:
            bias = torch.zeros_like(key_rows, dtype=self.dtype)
        if self.length % self.key_size:
            bias.masked_fill_(key_rows > last_rows, self.lowest)
            key_rows = key_rows.minimum(last_rows)
        if self.key_bias is not None:
            bias = bias.minimum(self.key_bias[key_rows])
        if self.last_log_gate is not None:
            bias[:, -self.key_size :] += self.last_log_gate[tiles, None]
        if self.key_kept is not None:
            weight = self.key_kept[tiles, :count].reshape(num_tiles, num_keys, 1).to(self.dtype) / (1 - self.dropout)
        bias = None if bias is None else bias[:, None]
        key_blocks = self.key_blocks[tiles, :count].flatten()
        return _Group(tiles, query_rows.flatten(), key_blocks, key_rows.flatten(), is_repeat, bias, weight)

    def load(self, group: _Group, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gathers the queries, keys and weighted values of a group from all rows."""
        tile_queries = self.gather("queries", queries, group.query_rows, group)
        tile_keys = self.gather("keys", keys, group.key_rows, group)
        tile_values = self.gather("values", values, group.key_rows, group)
        if group.weight is not None:
            tile_values *= group.weight
        return tile_queries, tile_keys, tile_values

    def gather(self, name: str, rows: Tensor, index: Tensor, group: _Group) -> Tensor:
        """Copies rows to the room of a name, as `(tiles, rows of a tile, head_dim)`."""
        room = self.room(name, len(group.tiles), len(index) // len(group.tiles), self.head_dim)
        torch.index_select(rows, 0, index, out=room.view(-1, self.head_dim))
        return room

    def room(self, name: str, *shape: int) -> Tensor:
        """Gives memory that all groups overwrite in turn, so that it is asked of the system once."""
        size = math.prod(shape)
        if name not in self.rooms or self.rooms[name].numel() < size:
            self.rooms[name] = torch.empty(size, dtype=self.dtype, device=self.kept.device)
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
        query, key, value: Fastest if all three are contiguous, or all as projections leave them: `(batch, length,
            heads, head_dim)` in memory, transposed. They and `last_log_gate` get gradients.
        key_mask: True for keys that exist. None means all.
        order: For each query block the indices of all key blocks, the most important first.
        kept: How many of them the query block attends to, at least 1.
        last_log_gate: What is added to the scores of the last of these. None is nothing.
        key_kept: False for keys, in the order of the list, that dropout drops. None drops nothing.
        dropout: The probability with which it was drawn.
        scaling: Factor of the scores.
        query_size: Queries in a block.
        key_size: Keys in a block.

    Shape:
        query, key, value, output: `(batch, heads, length, head_dim)`; key_mask: `(batch, length)`; order: `(batch,
        heads, query blocks, key blocks)`; kept, last_log_gate: `(batch, heads, query blocks)`; key_kept: `(batch,
        heads, query blocks, key blocks, key_size)`.
    """
    with torch.autocast(query.device.type, enabled=False):
        tiles = _Tiles(value, key_mask, order, kept, last_log_gate, key_kept, dropout, query_size, key_size)
        queries, keys, values = (tiles.rows(state) for state in (query, key, value))
        output = torch.empty_like(queries)
        for group in tiles.groups():
            tile_queries, tile_keys, tile_values = tiles.load(group, queries, keys, values)
            bias = None if group.bias is None else group.bias[:, None]
            tile_output = scaled_dot_product_attention(
                tile_queries[:, None], tile_keys[:, None], tile_values[:, None], bias, scale=scaling
            )
            output.index_copy_(0, group.query_rows, tile_output.reshape(-1, output.shape[1]))
        return tiles.state(output, value)


@attend_blocks.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *arguments: Tensor | float | None) -> Tensor:
    batch_size, num_heads, length, head_dim = value.shape
    if value.is_contiguous():
        return value.new_empty(value.shape)
    return value.new_empty(batch_size, length, num_heads, head_dim).transpose(1, 2)


def _exponentials(tiles: _Tiles, group: _Group, tile_queries: Tensor, tile_keys: Tensor, scaling: float) -> Tensor:
    """Gives the numerators of the softmax `(tiles, queries, keys)`: powers of 2 cost a CPU half of a softmax."""
    weights = tiles.room("weights", *tile_queries.shape[:2], tile_keys.shape[1])
    bias = torch.zeros_like(tile_queries[:1, :1, :1]) if group.bias is None else group.bias * LOG2_E
    torch.baddbmm(bias, tile_queries, tile_keys.mT, alpha=scaling * LOG2_E, out=weights)
    return weights.sub_(weights.amax(dim=-1, keepdim=True)).exp2_()


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
    with torch.autocast(query.device.type, enabled=False):
        tiles = _Tiles(value, key_mask, order, kept, last_log_gate, key_kept, dropout, query_size, key_size)
        grads, outputs, queries, keys, values = map(tiles.rows, (grad_output, output, query, key, value))
        grad_query = queries.new_empty(kept.numel(), query_size * tiles.head_dim)
        grad_key, grad_value = (queries.new_zeros(order[:, :, 0].numel(), key_size * tiles.head_dim) for _ in range(2))
        grad_gate = torch.zeros(kept.shape, dtype=torch.float32, device=kept.device)
        for group in tiles.groups():
            tile_queries, tile_keys, tile_values = tiles.load(group, queries, keys, values)
            tile_grads = tiles.gather("grads", grads, group.query_rows, group)
            if group.is_repeat is not None:
                tile_grads.masked_fill_(group.is_repeat, 0.0)
            weights = _exponentials(tiles, group, tile_queries, tile_keys, scaling)
            tile_grads /= weights.sum(dim=-1, keepdim=True)
            # The sum over keys of probability times its gradient, which the gradient of the softmax subtracts.
            products = tiles.gather("products", outputs, group.query_rows, group).mul_(tile_grads)
            offsets = products.sum(dim=-1, keepdim=True).neg_()
            grad_scores = tiles.room("grad_scores", *weights.shape)
            torch.baddbmm(offsets, tile_grads, tile_values.mT, out=grad_scores).mul_(weights)
            if last_log_gate is not None:
                grad_gate.view(-1)[group.tiles] = grad_scores[..., -key_size:].sum(dim=(1, 2), dtype=torch.float32)

            torch.bmm(grad_scores, tile_keys, out=products)
            grad_query.index_copy_(0, group.tiles, products.flatten(1))
            torch.bmm(grad_scores.mT, tile_queries, out=tile_keys)
            grad_key.index_add_(0, group.key_blocks, tile_keys.view(-1, grad_key.shape[1]))
            torch.bmm(weights.mT, tile_grads, out=tile_values)
            if group.weight is not None:
                tile_values *= group.weight
            grad_value.index_add_(0, group.key_blocks, tile_values.view(-1, grad_value.shape[1]))
        return (
            tiles.join(grad_query.mul_(scaling), query),
            tiles.join(grad_key.mul_(scaling), key),
            tiles.join(grad_value, value),
            grad_gate,
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
    grads = (state.new_empty(state.shape) for state in (query, key, value))
    return *grads, torch.empty(kept.shape, dtype=torch.float32, device=kept.device)


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
