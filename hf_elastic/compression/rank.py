"""Puts the units of every layer in order of importance, so that a smaller size is a prefix of a larger one."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from tqdm.auto import tqdm
from transformers.trainer_utils import has_length

from ..modeling.modeling_elastic import ElasticLayer, ElasticPreTrainedModel
from .checks import check_plain_weights
from .units import UNIT_WEIGHTS


@dataclass(frozen=True)
class Importance:
    """Scores of the units before they were reordered; the larger, the more the loss depends on the unit.

    Args:
        heads (`tuple[torch.Tensor, ...]`):
            One tensor of shape `(num_attention_heads,)` per layer.
        neurons (`tuple[torch.Tensor, ...]`):
            One tensor of shape `(intermediate_size,)` per layer.
        num_examples (`int`):
            Number of examples that were averaged over.
    """

    heads: tuple[torch.Tensor, ...]
    neurons: tuple[torch.Tensor, ...]
    num_examples: int


@torch.inference_mode(False)  # a caller's would let no gradients through
def rank(
    model: ElasticPreTrainedModel,
    dataloader: Iterable[Mapping[str, torch.Tensor]],
    max_batches: int | None = None,
) -> Importance:
    """Scores heads and feed-forward neurons, and reorders them in place, the most important first.

    A unit's score is what the loss would change, to first order, if the unit were removed: the absolute value of the
    unit's output times the loss's gradient with respect to it, summed over an example's positions and averaged over
    examples. The full model computes the same as before.

    Args:
        model (`ElasticPreTrainedModel`):
            The supernet, with a head. Its gradients, mode and active sub-network stay as they are.
        dataloader (`Iterable[Mapping[str, torch.Tensor]]`):
            Batches **of the training data**, with labels; scores from evaluation data would leak it into the sizes.
        max_batches (`int`, *optional*):
            Number of batches to use. All by default; a few hundred examples are usually enough.

    Returns:
        `Importance`: The scores, in the order of the units before.

    Raises:
        TypeError: If the model is not elastic, or its weights are adapted or quantized.
        ValueError: If there is no batch, or one of them gives no loss or one that is not finite.

    References:
        Michel et al. 2019, Are Sixteen Heads Really Better than One? (https://arxiv.org/abs/1905.10650);
        Molchanov et al. 2017, Pruning Convolutional Neural Networks (https://arxiv.org/abs/1611.06440);
        the use in a supernet: Hou et al. 2020, DynaBERT (https://arxiv.org/abs/2004.04037).
    """
    check_plain_weights(model)
    if max_batches is not None and max_batches < 1:
        raise ValueError(f"max_batches={max_batches} must be at least 1.")
    layers: list[ElasticLayer] = list(model.base_model.layers)
    importance = _score(model, layers, itertools.islice(dataloader, max_batches), _length(dataloader, max_batches))
    for layer, heads, neurons in zip(layers, importance.heads, importance.neurons, strict=True):
        _reorder(layer, heads.argsort(descending=True, stable=True), neurons.argsort(descending=True, stable=True))
    return importance


def _length(dataloader: Iterable, max_batches: int | None) -> int | None:
    """Gives the number of batches for the progress bar, if it is known."""
    if not has_length(dataloader):  # a dataloader of a stream has the method, which raises
        return max_batches
    return len(dataloader) if max_batches is None else min(max_batches, len(dataloader))


def _score(
    model: ElasticPreTrainedModel, layers: list[ElasticLayer], batches: Iterable, num_batches: int | None
) -> Importance:
    # In the order in which a forward pass meets them: the heads of a layer, then its neurons.
    scores = [
        torch.zeros(count, device=model.device)
        for layer in layers
        for count in (layer.attention.num_attention_heads, layer.mlp.intermediate_size)
    ]
    num_examples = 0
    was_training = model.training
    model.eval()
    try:
        with model.use_subnet(None), torch.enable_grad(), _unit_outputs(model, layers) as outputs:
            for batch in tqdm(batches, total=num_batches, desc="Ranking", unit="batch"):
                outputs.clear()
                num_examples += _add_scores(model, batch, outputs, scores)
    finally:
        model.train(was_training)
    if num_examples == 0:
        raise ValueError("The dataloader gives no batch: ranking needs training examples.")
    scores = [score / num_examples for score in scores]
    return Importance(tuple(scores[::2]), tuple(scores[1::2]), num_examples)


def _add_scores(
    model: ElasticPreTrainedModel,
    batch: Mapping[str, torch.Tensor],
    outputs: list[torch.Tensor],
    scores: list[torch.Tensor],
) -> int:
    """Adds the scores of one batch, with the unit outputs that its forward pass fills in; gives its size."""
    for name, value in batch.items():
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            raise ValueError(f"A batch has {name}={value!r}: each value must be a tensor with one row per example.")
    batch = {name: value.to(model.device) for name, value in batch.items()}
    loss = getattr(model(**batch), "loss", None)
    if loss is None:
        raise ValueError(
            f"{type(model).__name__} gives no loss for a batch of {sorted(batch)}: ranking needs a model with a head, "
            "and labels."
        )
    if not torch.isfinite(loss):
        raise ValueError(
            f"A batch of {sorted(batch)} gives a loss of {loss.item()}: check that it has labels other than -100 and "
            "no NaN, or rank in float32."
        )
    batch_size = len(next(iter(batch.values())))
    # The loss is a mean over the batch; the gradient of an example's own loss is `batch_size` times as large.
    gradients = torch.autograd.grad(loss * batch_size, outputs)
    for score, output, gradient in zip(scores, outputs, gradients, strict=True):
        contribution = output.detach().float() * gradient.float()
        contribution = contribution.reshape(batch_size, -1, len(score), output.shape[-1] // len(score))
        score += contribution.sum(dim=(1, 3)).abs().sum(dim=0)
    return batch_size


@contextmanager
def _unit_outputs(model: ElasticPreTrainedModel, layers: list[ElasticLayer]) -> Iterator[list[torch.Tensor]]:
    """Collects, layer by layer, what the heads and the neurons give to the projection that sums them up."""
    outputs: list[torch.Tensor] = []

    def collect(_, inputs):
        outputs.append(inputs[0])

    def require_grad(_, inputs, output):
        return output if output.requires_grad else output.requires_grad_()  # where all parameters are frozen

    handles = [model.base_model.embeddings.register_forward_hook(require_grad)]
    for layer in layers:
        handles.append(layer.attention.o_proj.register_forward_pre_hook(collect))
        handles.append(layer.mlp.down_proj.register_forward_pre_hook(collect))
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _reorder(layer: ElasticLayer, heads: torch.Tensor, neurons: torch.Tensor) -> None:
    head_dim = layer.attention.head_dim
    offsets = torch.arange(head_dim, device=heads.device)
    orders = {"heads": (heads[:, None] * head_dim + offsets).flatten(), "neurons": neurons}
    for name, (dimension, units) in UNIT_WEIGHTS.items():
        weight = layer.get_parameter(name)
        weight.copy_(weight.index_select(dimension, orders[units]))
