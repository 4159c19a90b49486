"""Cutting a batch into parts of fewer rows, each without the padding that only other parts need."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .distillation import token_mask

Batch = Mapping[str, Any]

_MASK = "attention_mask"


def split_batch(batch: Batch, size: int) -> list[dict[str, Any]]:
    """Cuts a batch into parts of at most `size` rows, as even as they can be.

    Padding at the end that a whole part has is cut off, of every attention mask and of what has its shape: token ids
    and types, labels per token, embeddings. Inputs of a teacher, such as `teacher_input_ids` with their own
    `teacher_attention_mask`, are cut by their own mask. What is left as it is:

    - Padding before the tokens, because learned positions count from the first column.
    - Batches with the start and the end of a span: the loss of transformers takes padding for a possible answer, so
      that another length would be another loss.
    - All of a part, where a floating point tensor has the shape of its mask by chance or on purpose, such as several
      labels per example: it may not be per token.

    Args:
        batch: Inputs of a model. Tensors and lists with one entry per row are cut, everything else is passed on.
        size: The most rows that a part may have.

    Returns:
        The parts, in order; the batch itself where it has no more rows.

    Raises:
        ValueError: If the size is no positive number.

    Example:
        >>> ids = torch.tensor([[5, 6, 7], [8, 0, 0]])
        >>> split_batch({"input_ids": ids, "attention_mask": ids.ne(0).long()}, size=1)[1]
        {'input_ids': tensor([[8]]), 'attention_mask': tensor([[1]])}
    """
    if size < 1:
        raise ValueError(f"A micro-batch of {size} rows is impossible. Give 1 or more.")
    rows = len(token_mask(batch))
    if size >= rows:
        return [dict(batch)]
    number = -(-rows // size)
    bounds = [rows * i // number for i in range(number + 1)]
    return [
        _cut_padding({name: _rows_of(value, rows, start, end) for name, value in batch.items()})
        for start, end in zip(bounds[:-1], bounds[1:], strict=True)
    ]


def _rows_of(value: Any, rows: int, start: int, end: int) -> Any:
    per_row = isinstance(value, list) or (isinstance(value, Tensor) and value.dim() > 0)
    return value[start:end] if per_row and len(value) == rows else value


def _cut_padding(batch: dict[str, Any]) -> dict[str, Any]:
    if "start_positions" in batch:
        return batch
    masks = [name for name, value in batch.items() if name.endswith(_MASK) and value is not None]
    # The longest prefix first: what belongs to `teacher_attention_mask` is not for `attention_mask` to cut.
    for mask in sorted(masks, key=len, reverse=True):
        prefix = mask.removesuffix(_MASK)
        others = [other.removesuffix(_MASK) for other in masks if len(other) > len(mask)]
        own = [name for name in batch if name.startswith(prefix) and not name.startswith(tuple(filter(None, others)))]
        batch = batch | _cut_by(batch[mask], {name: batch[name] for name in own})
    return batch


def _cut_by(mask: Tensor, inputs: dict[str, Any]) -> dict[str, Any]:
    """What has the mask's shape, without the columns at the end that are padding in every row."""
    shape = mask.shape
    if mask.dim() > 3:
        return {}  # one entry per pair of positions
    alike = {
        name: value
        for name, value in inputs.items()
        if isinstance(value, Tensor) and value.shape[: len(shape)] == shape
    }
    if any(value.is_floating_point() and not name.endswith("inputs_embeds") for name, value in alike.items()):
        return {}
    used = mask.flatten(end_dim=-2).any(dim=0).nonzero()
    length = int(used[-1]) + 1 if len(used) else 1
    leading = (slice(None),) * (len(shape) - 1)
    # Contiguous, because losses of transformers take views of labels.
    return {name: value[(*leading, slice(length))].contiguous() for name, value in alike.items()}
