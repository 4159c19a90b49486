"""What a subnet learns from the features of another model: its hidden states, embeddings, attention and relations."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .attention_states import attention_map
from .distillation import Observation, UnitCounts
from .feature_objectives import (
    attention_divergence,
    hidden_state_contrastive,
    hidden_state_cosine,
    hidden_state_mse,
    relation_divergence,
)

# Features that can be compared: the argument `<kind>_weight`, and what is logged as `<kind>_loss_<subnet>`.
OF_HIDDEN_STATES, OF_ATTENTION = ("hidden", "embedding"), ("attention", "relation")
HIDDEN_LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse": hidden_state_mse,
    "cosine": hidden_state_cosine,
    "contrastive": hidden_state_contrastive,
}


class Comparison(NamedTuple):
    """A student and what it is compared with, on the same tokens.

    Args:
        student: What the student makes of a batch.
        reference: What another model makes of it, without a graph.
        pairs: Layers that are compared (of the student, of the other), counted from 1; there may be none.
        mask: 1 for tokens that count, a row for each row of the features, see [`feature_mask`].
        counts: Units of the whole accumulated batch.
        project: Maps hidden states of the student to the reference's hidden size, where that is another.
    """

    student: Observation
    reference: Observation
    pairs: list[tuple[int, int]]
    mask: Tensor
    counts: UnitCounts
    project: Callable[[Tensor], Tensor]

    def hidden_states(self, ours: int, theirs: int) -> tuple[Tensor, Tensor]:
        """Two hidden states of one width; a smaller student has the leading units of the full model, so far."""
        student = self.project(self.student.hidden_states[ours])
        return student, self.reference.hidden_states[theirs][..., : student.shape[-1]]

    def mean(self, loss: Callable[[int, int], Tensor]) -> Tensor:
        """The mean of a loss over the pairs of layers."""
        return torch.stack([loss(ours, theirs) for ours, theirs in self.pairs]).mean()


def hidden_loss(comparison: Comparison, objective: str = "mse") -> Tensor:
    """Loss of the hidden states.

    Args:
        comparison: What is compared.
        objective: `"mse"`, `"cosine"` or `"contrastive"`.

    Returns:
        Scalar loss.
    """
    mask, counts = comparison.mask, comparison.counts
    normalizer = counts.sequences if objective == "contrastive" else counts.tokens
    return comparison.mean(
        lambda ours, theirs: HIDDEN_LOSSES[objective](*comparison.hidden_states(ours, theirs), mask, normalizer)
    )


def embedding_loss(comparison: Comparison) -> Tensor:
    """Squared difference of the embeddings' outputs."""
    return hidden_state_mse(*comparison.hidden_states(0, 0), comparison.mask, comparison.counts.tokens)


def attention_loss(comparison: Comparison) -> Tensor:
    """Divergence of the attention maps."""
    mask = comparison.mask

    def of_layers(ours: int, theirs: int) -> Tensor:
        layers = (comparison.student.attention[ours - 1], comparison.reference.attention[theirs - 1])
        maps = [attention_map(layer.query, layer.key, mask, layer.scaling) for layer in layers]
        return attention_divergence(*maps, mask, comparison.counts.tokens)

    return comparison.mean(of_layers)


def relation_loss(comparison: Comparison, relation_heads: int | None = None) -> Tensor:
    """Divergence of the relations among queries, among keys and among values, averaged over the three.

    Args:
        comparison: What is compared.
        relation_heads: Heads that the relations are cut into. None means the greatest common divisor of the numbers
            of attention heads, which divides both widths.

    Returns:
        Scalar loss.
    """

    def of_layers(ours: int, theirs: int) -> Tensor:
        student, reference = comparison.student.attention[ours - 1], comparison.reference.attention[theirs - 1]
        heads = relation_heads or math.gcd(student.query.shape[1], reference.query.shape[1])
        states = zip(student[:3], reference[:3], strict=True)
        units = (comparison.mask, comparison.counts.tokens, heads)
        return torch.stack([relation_divergence(*both, *units) for both in states]).mean()

    return comparison.mean(of_layers)
