"""Attention under a sliding window with global tokens and random blocks, computed as blocks.

What is distinctive: keys that no query of a block sees are never multiplied, in either direction, and memory grows
linearly with the length. [`WindowPattern.dense_mask`] defines the result; three computations give it:

- on a CPU a loop over blocks of queries, each one call of the flash kernel on a view of the keys around it;
- under `torch.compile` on CUDA FlexAttention, which skips the blocks that its block mask leaves out;
- everywhere else (other devices, dropout, exported code) all blocks as one batch of `scaled_dot_product_attention`.
"""

import re
from collections.abc import Iterator
from dataclasses import astuple

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import pad, scaled_dot_product_attention

from .window_pattern_elastic import WindowPattern

aten = torch.ops.aten
# The operators' namespace: the package's module and the copies that checkpoints carry differ in their names.
NAMESPACE = re.sub(r"\W", "_", __name__)


def window_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    padding_mask: torch.BoolTensor | None,
    pattern: WindowPattern,
    scaling: float,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Computes what softmax attention masked by `pattern.dense_mask` and the padding gives for every token.

    Args:
        query, key, value (`torch.Tensor` of shape `(batch, heads, length, head_dim)`):
            What attends, and what is attended to. Views that are transposed in memory cost nothing extra.
        padding_mask (`torch.BoolTensor` of shape `(batch, length)`, *optional*):
            `True` for tokens, `False` for padding, which no token sees.
        pattern ([`WindowPattern`]):
            Which keys a query sees.
        scaling (`float`):
            Factor of the scores, usually `head_dim ** -0.5`.
        dropout (`float`, defaults to 0.0):
            Probability of dropping an attention weight.

    Returns:
        `torch.Tensor` of shape `(batch, heads, length, head_dim)`: The context; finite in padded rows, but arbitrary.

    Raises:
        ValueError: If keys, values or the padding mask do not fit the queries.
    """
    for name, states in (("key", key), ("value", value)):
        if states.shape != query.shape:
            raise ValueError(f"{name} has the shape {tuple(states.shape)}: give that of query, {tuple(query.shape)}.")
    rows = (query.shape[0], query.shape[2])
    if padding_mask is not None and (padding_mask.shape != rows or padding_mask.dtype != torch.bool):
        raise ValueError(
            f"padding_mask has the shape {tuple(padding_mask.shape)} and {padding_mask.dtype}: give truth values of "
            f"shape {rows}, True for tokens."
        )
    device = query.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        query, key, value = (states.to(torch.get_autocast_dtype(device)) for states in (query, key, value))
    compiling = torch.compiler.is_dynamo_compiling()
    # Exported graphs keep to common operators.
    exporting = (torch.compiler.is_compiling() and not compiling) or torch.jit.is_tracing()
    if device == "cpu" and dropout == 0 and not exporting:
        return looped_window_attention(query, key, value, padding_mask, list(astuple(pattern)), scaling)[0]
    if device == "cuda" and dropout == 0 and compiling:
        return flex_window_attention(query, key, value, padding_mask, pattern, scaling)
    return batched_window_attention(query, key, value, padding_mask, pattern, scaling, dropout)


def prefers_dense(length: int, pattern: WindowPattern) -> bool:
    """Tells whether scaled dot product attention under [`WindowPattern.dense_mask`] takes less time on a length.

    It does on short inputs. A graph that is exported for all lengths also has to be dense, because the number of
    blocks is not known there.
    """
    if not isinstance(length, int):  # of `torch.export` and `torch.jit.trace` with dynamic shapes
        return True
    size, num_global = pattern.block_size, pattern.num_global_tokens
    # Global tokens cost twice: as keys of every query, and as queries of every key.
    keys_per_query = size + 2 * pattern.window + size * pattern.num_random_blocks + 2 * num_global
    # Measured on one CPU core for windows of 16 to 256 and blocks of 64 and 128, with and without global tokens and
    # random blocks: both take the same time where the input is about 64 longer than what is computed for a query,
    # because calling the kernel for each block costs as much as some more keys.
    return length < keys_per_query + 64


@torch.library.custom_op(f"{NAMESPACE}::looped_window_attention", mutates_args=())
def looped_window_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    padding_mask: torch.Tensor | None,
    pattern: list[int],
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Calls PyTorch's flash kernel for the CPU once per block of queries.

    An operator, because compiled code would hold the loop unrolled, for one number of blocks.

    Returns:
        The context, and for each query the logarithm of the sum that its softmax divides by.
    """
    query, key, value = (with_unit_stride(states) for states in (query, key, value))
    output, logsumexp = empty_states(query), empty_states(query[..., 0], at_least_float32(query.dtype))
    for queries, keys, bias in walk_blocks(WindowPattern(*pattern), query.shape[2], padding_mask, logsumexp.dtype):
        output[:, :, queries], logsumexp[:, :, queries] = aten._scaled_dot_product_flash_attention_for_cpu(
            query[:, :, queries], take(key, keys), take(value, keys), attn_mask=bias, scale=scaling
        )
    return output, logsumexp


@looped_window_attention.register_fake
def _(query, key, value, padding_mask, pattern, scaling):
    return empty_states(query), empty_states(query[..., 0], at_least_float32(query.dtype))


@torch.library.custom_op(f"{NAMESPACE}::looped_window_attention_backward", mutates_args=())
def looped_window_attention_backward(
    grad_output: torch.Tensor,
    output: torch.Tensor,
    logsumexp: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    padding_mask: torch.Tensor | None,
    pattern: list[int],
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Calls the kernel's backward pass likewise, and adds to the gradients of the keys that a block saw in place.

    Automatic differentiation of the slices would write gradients of full length for each block instead, which takes
    quadratic time.
    """
    grad_output, query, key, value = (with_unit_stride(states) for states in (grad_output, query, key, value))
    grad_query = empty_states(query)
    # Every block adds to the gradients of global keys: sixteen bits would lose the later ones.
    grad_key, grad_value = (empty_states(key, at_least_float32(key.dtype)).zero_() for _ in range(2))
    for queries, keys, bias in walk_blocks(WindowPattern(*pattern), query.shape[2], padding_mask, logsumexp.dtype):
        grad_query[:, :, queries], *grads = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_output[:, :, queries],
            query[:, :, queries],
            take(key, keys),
            take(value, keys),
            output[:, :, queries],
            logsumexp[:, :, queries],
            dropout_p=0.0,
            is_causal=False,
            attn_mask=bias,
            scale=scaling,
        )
        for total, grad in zip((grad_key, grad_value), grads, strict=True):
            add_back(total, keys, grad)
    return grad_query, grad_key.to(key.dtype), grad_value.to(value.dtype)


@looped_window_attention_backward.register_fake
def _(grad_output, output, logsumexp, query, key, value, padding_mask, pattern, scaling):
    return empty_states(query), empty_states(key), empty_states(value)


def _setup_context(ctx, inputs, output):
    *tensors, ctx.pattern, ctx.scaling = inputs
    ctx.save_for_backward(*output, *tensors)


def _backward(ctx, grad_output, _):
    grads = looped_window_attention_backward(grad_output, *ctx.saved_tensors, ctx.pattern, ctx.scaling)
    return *grads, None, None, None


looped_window_attention.register_autograd(_backward, setup_context=_setup_context)


def walk_blocks(
    pattern: WindowPattern, length: int, padding_mask: torch.BoolTensor | None, dtype: torch.dtype
) -> Iterator[tuple[slice, list[slice], torch.Tensor | None]]:
    """Goes through the blocks of queries, the global tokens first, as a block of their own.

    Yields:
        The positions of the queries; the positions of all keys that one of them sees, as separate runs; and what is
        added to the scores, of the given type and a shape that broadcasts to `(batch, heads, queries, keys)`.
    """
    size, window = pattern.block_size, min(pattern.window, length)
    num_global = min(pattern.num_global_tokens, length)
    padding = None
    if padding_mask is not None and not padding_mask.all():
        padding = bias_of(padding_mask, dtype)[:, None]
    if num_global:
        yield slice(0, num_global), [slice(0, length)], None if padding is None else padding[:, :, None]
    # One block's window, for the keys from `window` before the block to `window` after it.
    distances = torch.arange(-window, size + window) - torch.arange(size)[:, None]
    band = bias_of(distances.abs() <= window, dtype)[None, None]
    random_blocks = pattern.random_blocks(length, "cpu").tolist()
    start = num_global
    while start < length:
        block = start // size
        stop = min((block + 1) * size, length)
        far = [slice(0, num_global)] if num_global else []
        existing = [other for other in random_blocks[block] if other * size < length]
        far += [slice(max(other * size, num_global), min((other + 1) * size, length)) for other in existing]
        near = slice(max(start - window, num_global), min(stop + window, length))
        bias = band[:, :, : stop - start, near.start - start + window : near.stop - start + window]
        bias = pad(bias, (sum(run.stop - run.start for run in far), 0))
        if padding is not None:
            bias = bias + take(padding, [*far, near])[:, :, None]
        yield slice(start, stop), [*far, near], bias
        start = stop


def take(states: torch.Tensor, runs: list[slice]) -> torch.Tensor:
    """Gives the positions (the third dimension) of all runs, without a copy where there is one run."""
    return states[:, :, runs[0]] if len(runs) == 1 else torch.cat([states[:, :, run] for run in runs], dim=2)


def add_back(total: torch.Tensor, runs: list[slice], states: torch.Tensor) -> None:
    """Adds in place to the positions that [`take`] gave."""
    for run, part in zip(runs, states.split([run.stop - run.start for run in runs], dim=2), strict=True):
        total[:, :, run] += part


def batched_window_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    padding_mask: torch.BoolTensor | None,
    pattern: WindowPattern,
    scaling: float,
    dropout: float,
) -> torch.Tensor:
    """Attends with all blocks of queries as one batch, to copies of the keys that each block sees."""
    batch, heads, length, head_dim = query.shape
    size, num_global = pattern.block_size, min(pattern.num_global_tokens, length)
    key_blocks, visible = seen_key_blocks(pattern, length, query.device)
    num_blocks, num_keys = visible.shape[0], visible.shape[2]

    # Views with all sizes given: under `torch.compile` and exporting, inferring them takes minutes.
    def split(states: torch.Tensor) -> torch.Tensor:
        """From `(batch, length, ...)` to `(batch, num_blocks, size, ...)`, zeros after the end."""
        after = (0, 0) * (states.dim() - 2) + (0, num_blocks * size - length)
        return pad(states, after).view(batch, num_blocks, size, *states.shape[2:])

    def gather(states: torch.Tensor) -> torch.Tensor:
        """From `(batch, length, ...)` to `(batch, num_blocks, keys, ...)`: the global tokens, then the key blocks."""
        parts = split(states).index_select(1, key_blocks).view(batch, num_blocks, num_keys, *states.shape[2:])
        if num_global == 0:
            return parts
        shared = states[:, None, :num_global].expand(-1, num_blocks, -1, *states.shape[2:])
        return torch.cat([shared, parts], dim=2)

    visible = pad(visible, (num_global, 0), value=True)[None].expand(batch, -1, -1, -1)
    if padding_mask is not None:
        visible = visible & gather(padding_mask)[:, :, None]
    rows = batch * num_blocks
    queries, keys, values = (
        states.view(rows, -1, heads, head_dim).transpose(1, 2)
        for states in (split(query.transpose(1, 2)), gather(key.transpose(1, 2)), gather(value.transpose(1, 2)))
    )
    bias = bias_of(visible, query.dtype).view(rows, 1, size, num_global + num_keys)
    output = scaled_dot_product_attention(queries, keys, values, bias, dropout, scale=scaling)
    output = output.transpose(1, 2).reshape(batch, num_blocks * size, heads, head_dim)[:, :length].transpose(1, 2)
    if num_global == 0:
        return output
    bias = None if padding_mask is None else bias_of(padding_mask, query.dtype)[:, None, None]
    global_output = scaled_dot_product_attention(query[:, :, :num_global], key, value, bias, dropout, scale=scaling)
    return torch.cat([global_output, output[:, :, num_global:]], dim=2)


def seen_key_blocks(
    pattern: WindowPattern, length: int, device: torch.device
) -> tuple[torch.LongTensor, torch.BoolTensor]:
    """Lists the key blocks that each block of queries sees, and what each query sees in them.

    Returns:
        The blocks' indices, `count` of each block of queries, and `(num_blocks, block_size, count * block_size)` truth
        values. Those are `False` for global tokens, for positions after the end, and where a block stands in for one
        that does not exist.
    """
    random_blocks = pattern.random_blocks(length, device)
    num_blocks, size = random_blocks.shape[0], pattern.block_size
    blocks, within = torch.arange(num_blocks, device=device), torch.arange(size, device=device)
    reach = min(pattern.reach, num_blocks - 1)
    near_blocks = blocks[:, None] + torch.arange(-reach, reach + 1, device=device)
    key_blocks = torch.cat([near_blocks, random_blocks], dim=1)
    queries = (blocks[:, None] * size + within)[:, :, None]
    keys = (key_blocks[:, :, None] * size + within).view(num_blocks, 1, key_blocks.shape[1] * size)
    visible = pattern.visibility(length, device)(queries, keys)
    visible = visible & (keys >= pattern.num_global_tokens) & (keys < length)
    return key_blocks.clamp(0, num_blocks - 1).view(-1), visible


def flex_window_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    padding_mask: torch.BoolTensor | None,
    pattern: WindowPattern,
    scaling: float,
) -> torch.Tensor:
    """Attends with FlexAttention, which is only fast when compiled (Dong et al. 2024, https://arxiv.org/abs/2412.05496).

    The block mask belongs to the compiled graph: it is computed without a mask of full size in memory, and once for
    all layers of the same pattern, because equal computations of a graph are merged.
    """
    length = query.shape[2]
    sees = pattern.visibility(length, query.device)

    def mask_mod(row: torch.Tensor, head: torch.Tensor, query_position: torch.Tensor, key_position: torch.Tensor):
        visible = sees(query_position, key_position)
        return visible if padding_mask is None else visible & padding_mask[row, key_position]

    num_rows = None if padding_mask is None else len(padding_mask)
    block_mask = create_block_mask(mask_mod, num_rows, None, length, length, device=query.device)
    return flex_attention(query, key, value, block_mask=block_mask, scale=scaling)


def bias_of(visible: torch.BoolTensor, dtype: torch.dtype) -> torch.Tensor:
    """Gives what is added to scores: finite numbers, so that rows that see nothing stay finite."""
    return torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, torch.finfo(dtype).min)


def with_unit_stride(states: torch.Tensor) -> torch.Tensor:
    """Copies only what the flash kernel cannot read: features that do not lie side by side."""
    return states if states.stride(-1) == 1 else states.contiguous()


def empty_states(like: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Allocates `(batch, heads, length, ...)` with the heads of a position side by side, as the kernel does."""
    like = like.transpose(1, 2)
    return torch.empty_like(like, dtype=dtype, memory_format=torch.contiguous_format).transpose(1, 2)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Gives the precision of sums over values of a type."""
    return torch.promote_types(dtype, torch.float32)


__all__ = ["WindowPattern", "prefers_dense", "window_attention"]
