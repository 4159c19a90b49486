"""Logs how the layers of a model train: how much their weights change, their gradients, and their activations."""

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_LAYER = re.compile(r"(?:^|\.)(layers\.\d+)$")
_PART_OF_LAYER = re.compile(r"(?:^|\.)(layers\.\d+\.\w+)\.")
# What wrappers and heads put before the parts of a model.
_PREFIXES = {"module", "_orig_mod", "_fsdp_wrapped_module", "base_model", "model"}


class TrainingStatistics(TrainerCallback):
    """Logs statistics of every layer at every so many steps.

    For each part of the model, such as `layers.3.attention`:

    - `update_ratio/<part>`: norm of the change of its weights in that step, divided by their norm. The notes below
      expect about 0.001.
    - `gradient_norm/<part>`: norm of its gradient, after clipping.

    For each layer, such as `layers.3`, over all its outputs in that step, those of all sub-networks and micro-batches,
    padding included:

    - `activation_mean/<layer>`, `activation_std/<layer>`, and `activation_max/<layer>`, the largest absolute value.

    A layer that no sub-network of the step runs has no activations, and a part without gradients no gradient norm.
    With several processes the activations are those of the first one; weights and gradients are the same in all, and
    sharded ones are put together. Layers of a compiled model have no activations.

    A step that is not due costs nothing. One that is due keeps a copy of the trainable weights for its duration, and
    waits for the device once.

    Args:
        steps (`int`):
            Every so many steps are due, those whose number is a multiple of it.
        log (`Callable[[dict[str, float]], None]`):
            Where the statistics go: `trainer.log`.

    References:
        Karpathy, CS231n course notes, Ratio of weights:updates, https://cs231n.github.io/neural-networks-3/#ratio
        Wortsman et al. 2024, Small-scale proxies for large-scale Transformer training instabilities,
        https://arxiv.org/abs/2309.14322, which relates the growth of activations to instabilities.

    Example:
        >>> trainer.add_callback(TrainingStatistics(100, trainer.log))
    """

    def __init__(self, steps: int, log: Callable[[dict[str, float]], None]) -> None:
        self.steps, self.log = steps, log
        self._is_due = False
        self._hooks: list[RemovableHandle] = []
        self._activations: dict[str, _Moments] = {}
        self._weights: dict[str, Tensor] = {}
        self._statistics: dict[str, Tensor] = {}

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        self.forget()  # an epoch may end within a step
        self._is_due = (state.global_step + 1) % self.steps == 0
        if self._is_due:
            self._activations = defaultdict(_Moments)
            for name, module in model.named_modules():
                if match := _LAYER.search(name):
                    self._hooks.append(module.register_forward_hook(self._watch(match[1])))

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._is_due:
            return
        parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
        norms = norm_by_part(gradients)
        self._statistics = {f"gradient_norm/{part}": norm for part, norm in norms.items()}
        self._weights = {name: parameter.detach().clone() for name, parameter in parameters.items()}

    def on_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._is_due:
            return
        after = {name: p.detach() for name, p in model.named_parameters() if name in self._weights}
        changes = norm_by_part({name: after[name] - before for name, before in self._weights.items()})
        # The norm after the step: before the first one, the weights of an adapter are 0.
        norms = norm_by_part(after)
        for part, change in changes.items():
            self._statistics[f"update_ratio/{part}"] = change / norms[part].clamp(min=torch.finfo(change.dtype).tiny)
        for layer, moments in self._activations.items():
            self._statistics |= {f"activation_{name}/{layer}": value for name, value in moments.summary().items()}

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # Only now is the number of the step the one that its loss is logged under.
        if self._is_due and self._statistics:
            values = torch.stack([value.float() for value in self._statistics.values()]).tolist()
            due = control.should_log
            self.log(dict(zip(self._statistics, values, strict=True)))
            control.should_log = due  # a log counts as the one that is due, but the loss of this step is not in it
        self.forget()

    def forget(self) -> None:
        """Takes the hooks off the model, and drops all that a step has shown so far."""
        for hook in self._hooks:
            hook.remove()
        self._is_due, self._hooks = False, []
        self._activations, self._weights, self._statistics = {}, {}, {}

    def forget_activations(self) -> None:
        """Drops what the passes of a step have shown so far, because the step begins again."""
        self._activations.clear()

    def _watch(self, layer: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            self._activations[layer].add(output[0] if isinstance(output, tuple) else output)

        return hook


def norm_by_part(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The Euclidean norm of the tensors of each part of a model, in float32 or better.

    Args:
        tensors: Gradients, weights or their changes, by the name of the parameter.

    Returns:
        Norms by part, in the order of the model: attention, feed-forward block and norms of each layer, and what there
        is besides layers, such as `embeddings` or `classifier`.

    Shape:
        Outputs: `[]`.

    Example:
        >>> norm_by_part({"model.layers.0.mlp.up.weight": torch.ones(4), "model.layers.0.mlp.up.bias": torch.zeros(4)})
        {'layers.0.mlp': tensor(2.)}
    """
    norms = defaultdict(list)
    for name, tensor in tensors.items():
        dtype = torch.promote_types(tensor.dtype, torch.float32)
        norm = torch.linalg.vector_norm(tensor, dtype=dtype)
        norms[part_of(name)].append(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
    return {part: torch.linalg.vector_norm(torch.stack(of_part)) for part, of_part in norms.items()}


def part_of(parameter: str) -> str:
    """The part of a model that a parameter belongs to, without the names of wrappers.

    Example:
        >>> part_of("base_model.model.model.layers.3.attention.q_proj.weight"), part_of("classifier.weight")
        ('layers.3.attention', 'classifier')
    """
    if match := _PART_OF_LAYER.search(parameter):
        return match[1]
    return next((name for name in parameter.split(".") if name not in _PREFIXES), parameter)


class _Moments:
    """Mean, standard deviation and largest absolute value of tensors that come one by one, kept on their device."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = self.squares = self.largest = torch.zeros(())

    def add(self, values: Tensor) -> None:
        values = values.detach().float()
        self.count += values.numel()
        self.sum = self.sum + values.sum()
        self.squares = self.squares + values.square().sum()
        self.largest = torch.maximum(self.largest.to(values.device), values.abs().max())

    def summary(self) -> dict[str, Tensor]:
        mean = self.sum / self.count
        return {
            "mean": mean,
            "std": (self.squares / self.count - mean.square()).clamp(min=0).sqrt(),
            "max": self.largest,
        }
