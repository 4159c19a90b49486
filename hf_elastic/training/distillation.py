"""What a subnet learns from the predictions of another model on the same inputs: the objective that fits the head.

The head is told from its outputs, so that a teacher may be any transformers model with the same kind of outputs.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from .attention_states import AttentionStates
from .objectives import binary_kl, kl_divergence, logit_mse, soft_cross_entropy
from .teacher_mixing import prediction_kind

IGNORED_LABEL = -100
# How predictions of classes are compared. All have the same arguments.
OUTPUT_LOSSES: dict[str, Callable[..., Tensor]] = {
    "kl": kl_divergence,
    "cross_entropy": soft_cross_entropy,
    "mse": lambda student, teacher, temperature, **units: logit_mse(student, teacher, **units),
}

Batch = Mapping[str, Any]


class UnitCounts(NamedTuple):
    """Number of units of each kind in one accumulated batch: what the summed losses are divided by."""

    examples: Tensor
    tokens: Tensor
    labels: Tensor

    @classmethod
    def of(cls, batch: Batch) -> "UnitCounts":
        """Counts the examples, the non-padding tokens and the labels of a (micro-)batch."""
        mask, labels = token_mask(batch), batch.get("labels")
        examples = torch.tensor(len(mask), device=mask.device)
        return cls(examples, mask.sum(), examples if labels is None else (labels != IGNORED_LABEL).sum())


class Observation(NamedTuple):
    """What a model makes of a batch, as far as others may learn from it.

    Shape:
        logits: one tensor, or two where the head predicts the start and the end of a span.
        hidden_states: `[examples, length, hidden]` each, the embeddings' output first; None if not asked for.
        attention: the states of each layer, see [`AttentionStates`]; None if not asked for.
    """

    logits: tuple[Tensor, ...]
    hidden_states: tuple[Tensor, ...] | None = None
    attention: tuple[AttentionStates, ...] | None = None

    @classmethod
    def of(cls, outputs: ModelOutput, attention: Mapping[int, AttentionStates] | None = None) -> "Observation":
        """Takes what is needed of a model's outputs, and of what was recorded of its layers."""
        return cls(logits_of(outputs), outputs.get("hidden_states"), attention and tuple(attention.values()))

    def detached(self, max_length: int | None = None) -> "Observation":
        """The same without a graph; of features only those of the first tokens, if a length is given."""
        cut = slice(max_length)
        hidden_states = self.hidden_states and tuple(state.detach()[:, cut] for state in self.hidden_states)
        attention = self.attention and tuple(
            AttentionStates(*(state.detach()[:, :, cut] for state in layer[:3]), layer.scaling)
            for layer in self.attention
        )
        return Observation(tuple(logits.detach() for logits in self.logits), hidden_states, attention)


def prediction_loss(
    student: tuple[Tensor, ...],
    target: tuple[Tensor, ...],
    batch: Batch,
    counts: UnitCounts,
    temperature: float = 1.0,
    problem_type: str | None = None,
    output_loss: str = "kl",
) -> Tensor:
    """Loss of a student's predictions against those that it learns from.

    Of classes the divergence, or what `output_loss` says; per labelled token where the logits are per token; over the
    non-padding positions for the start and end of a span; per label for several labels; squared difference for
    regression.

    Args:
        student: Logits of the student, two of a head for spans.
        target: Logits that it learns from, likewise.
        batch: Their inputs, labels included.
        counts: Units of the whole accumulated batch.
        temperature: Divides the logits of both sides.
        problem_type: The student's `config.problem_type`.
        output_loss: `"kl"`, `"cross_entropy"` or `"mse"`.

    Returns:
        Scalar loss.
    """
    objective = _objective_for(student, batch, counts, temperature, problem_type, output_loss)
    return torch.stack([objective(ours, theirs) for ours, theirs in zip(student, target, strict=True)]).mean()


def _objective_for(
    logits: tuple[Tensor, ...],
    batch: Batch,
    counts: UnitCounts,
    temperature: float,
    problem_type: str | None,
    output_loss: str,
) -> Callable[[Tensor, Tensor], Tensor]:
    of_classes = partial(OUTPUT_LOSSES[output_loss], temperature=temperature)
    if len(logits) == 2:
        return partial(of_classes, normalizer=counts.examples, class_mask=token_mask(batch))
    kind = prediction_kind(logits[0], batch.get("labels"), problem_type)
    if kind == "values":
        return partial(logit_mse, normalizer=counts.examples)
    if kind == "labels":
        return partial(binary_kl, temperature=temperature, normalizer=counts.examples)
    if logits[0].dim() == 3:
        return partial(of_classes, normalizer=counts.labels, mask=batch["labels"] != IGNORED_LABEL)
    return partial(of_classes, normalizer=counts.examples)


def logits_of(outputs: ModelOutput) -> tuple[Tensor, ...]:
    """The logits of any head."""
    if "start_logits" in outputs:
        return outputs.start_logits, outputs.end_logits
    return (outputs.logits,)


def token_mask(batch: Batch) -> Tensor:
    """1 for tokens, 0 for padding: `[examples, length]`, or `[examples, choices, length]`."""
    if batch.get("attention_mask") is not None:
        return batch["attention_mask"]
    if "input_ids" in batch:
        return torch.ones_like(batch["input_ids"])
    embeddings = batch["inputs_embeds"]
    return torch.ones(embeddings.shape[:-1], dtype=torch.long, device=embeddings.device)
