"""The queries, keys and values that a model's layers attend with.

What is distinctive: they are read where every encoder of transformers hands them over, its attention implementation.
For one forward pass the configuration names another implementation, which notes the states and then computes what the
model's own one does. No module is touched, and the same code serves every architecture.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.module_tracker import ModuleTracker
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .objectives import at_least_float32

PREFIX = "recorded_"
# Layers of other types compute their context without the attention interface.
RECORDABLE = ("full_attention", "sliding_attention")


class AttentionStates(NamedTuple):
    """What one layer attends with, after rotary positions where a model has them.

    Shape:
        query, key, value: `[batch, heads, length, head_dim]`; key and value may have fewer heads than query.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scaling: float


class _Recorder:
    """The modules that are listened to, and what their attention was called with."""

    def __init__(self, model: nn.Module, layers: Collection[int] | None) -> None:
        self.modules = set(model.modules())
        self.layers = layers
        self.states: dict[int, AttentionStates] = {}
        self.calls = 0
        self.needs_gradients = torch.is_grad_enabled() and _is_checkpointing(model)

    def add(self, states: AttentionStates) -> None:
        """Counts a call, which is the next layer, and keeps its states if they were asked for."""
        if self.needs_gradients and not torch.is_grad_enabled():
            raise ValueError(
                "The attention states have no gradient, as with reentrant activation checkpointing: give "
                'activation_checkpointing_kwargs={"use_reentrant": False}.'
            )
        self.calls += 1
        if self.layers is None or self.calls in self.layers:
            self.states[self.calls] = states

    def check(self) -> None:
        """Raises ValueError if a layer that was asked for did not attend."""
        if self.calls == 0:
            raise ValueError(
                "No attention states were recorded: either no forward pass ran, or the model took the padding out of "
                "its inputs, so that all sequences were one row. Pad on the right and pass unpad_inputs=False to it."
            )
        missing = sorted(set(self.layers or ()) - self.states.keys())
        if missing:
            raise ValueError(f"Layer {missing[0]} was to be recorded, but the layers 1 to {self.calls} ran.")


_active: list[_Recorder] = []


@contextmanager
def record_attention_states(
    model: nn.Module, layers: Collection[int] | None = None
) -> Iterator[dict[int, AttentionStates]]:
    """Records the queries, keys and values of one forward pass within the block.

    Gradients flow through them. They stay in memory as long as the dictionary does. A recomputation of layers by
    activation checkpointing is not recorded, within the block or after it.

    The implementations `"eager"` and flash attention are replaced by `"sdpa"` for the pass, which computes the same
    attention but gives no weights; see [`attention_map`].

    Elastic models that take the padding out of their inputs (`unpad_inputs`) hold all sequences in one row, which has
    no states of the shape of a batch: pass `unpad_inputs=False` to a forward pass that is recorded.

    Args:
        model: Any encoder of transformers whose attention goes through the attention interface, or a wrapper of one.
        layers: Layers to keep, counted from 1 in the order in which they run. None keeps all.

    Yields:
        The states by layer, filled by the forward pass. A sub-network numbers the layers that it has.

    Raises:
        ValueError: If layers of the model have another kind of attention; if a layer that was asked for did not run,
            or none did; or if activation checkpointing would recompute something else or lose the gradients.

    Example:
        >>> with record_attention_states(model, layers={12}) as states:
        ...     outputs = model(**batch)
        >>> states[12].value.shape
        torch.Size([8, 12, 128, 64])
    """
    configs = _configs_of(model)
    names = {key: _register(config, model) for key, config in configs.items()}
    previous = {key: config._attn_implementation for key, config in configs.items()}
    recorder = _Recorder(model, layers)
    _active.append(recorder)
    try:
        for key, config in configs.items():
            _set_implementation(config, names[key])
        yield recorder.states
    finally:
        _active.remove(recorder)
        for key, config in configs.items():
            _set_implementation(config, previous[key])
    recorder.check()


def attention_map(query: Tensor, key: Tensor, mask: Tensor | None = None, scaling: float | None = None) -> Tensor:
    """Weights with which each token attends to the others, without padding.

    They are those of full attention, also for a layer that attends to a window only.

    Args:
        query: Queries of a layer.
        key: Keys of the layer.
        mask: Positions that count, normally the attention mask. None counts all.
        scaling: Factor of the scores. None means one over the square root of the head size.

    Shape:
        query, key: `[batch, heads, length, head_dim]`; mask: `[batch, length]`; output: `[batch, heads, length,
        length]` in float32 or better, whose rows sum to 1 over the non-padding keys.

    Example:
        >>> attention_map(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), mask=torch.tensor([[1, 0]]))
        tensor([[[[1., 0.],
                  [1., 0.]]]])
    """
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    query, key = at_least_float32(query), at_least_float32(key)
    if key.shape[1] != query.shape[1]:  # grouped queries, several of which share a key
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    if mask is not None:
        padding = ~mask.bool()[:, None, :, None]
        query, key = query.masked_fill(padding, 0.0), key.masked_fill(padding, 0.0)
    with torch.autocast(query.device.type, enabled=False):
        scores = (query * scaling) @ key.transpose(2, 3)
    if mask is not None:
        scores.masked_fill_(padding.transpose(2, 3), torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1)


def _record_and_attend(
    implementation: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """An attention function of transformers that notes what it is called with."""
    _record(module, AttentionStates(query, key, value, query.shape[-1] ** -0.5 if scaling is None else scaling))
    attend = ALL_ATTENTION_FUNCTIONS[implementation]
    return attend(module, query, key, value, attention_mask, scaling=scaling, **kwargs)


@torch.compiler.disable
def _record(module: nn.Module, states: AttentionStates) -> None:
    if ModuleTracker().is_bw:  # activation checkpointing recomputes layers in the backward pass
        return
    for recorder in _active:
        if module in recorder.modules:
            recorder.add(states)


def _register(config: PreTrainedConfig, model: nn.Module) -> str:
    """Registers the recording form of a model's implementation, and gives its name."""
    others = sorted(set(getattr(config, "layer_types", None) or ()) - set(RECORDABLE))
    if others:
        raise ValueError(
            f"Attention states of {others[0]!r} layers cannot be recorded, only those of {' and '.join(RECORDABLE)}. "
            "Compare hidden states instead."
        )
    implementation = config._attn_implementation
    if implementation.startswith(PREFIX):  # within another recording
        return implementation
    own = implementation
    if implementation == "eager" or "flash" in implementation:
        own = "sdpa"
        if torch.is_grad_enabled() and _is_checkpointing(model):
            raise ValueError(
                f"attn_implementation={implementation!r} cannot be recorded with activation checkpointing, which "
                'would recompute the layers with it and not with "sdpa": call model.set_attn_implementation("sdpa").'
            )
    name = PREFIX + own
    if name not in ALL_ATTENTION_FUNCTIONS:  # once, because compiled models watch the function
        AttentionInterface.register(name, partial(_record_and_attend, own))
    # Without a mask function of the same name, padding would be ignored.
    if own in ALL_MASK_ATTENTION_FUNCTIONS:
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[own])
    return name


def _configs_of(model: nn.Module) -> dict[int, PreTrainedConfig]:
    """The configurations that the modules of a model read, also within wrappers that have none."""
    configs = (getattr(module, "config", None) for module in model.modules())
    return {id(config): config for config in configs if isinstance(config, PreTrainedConfig)}


def _set_implementation(config: PreTrainedConfig, name: str) -> None:
    config._attn_implementation = {"": name}  # as a dictionary, which leaves the configurations within it alone


def _is_checkpointing(model: nn.Module) -> bool:
    return any(module.training and getattr(module, "gradient_checkpointing", False) for module in model.modules())
