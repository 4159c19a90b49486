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
    """Number of units of each kind in one accumulated batch: what the summed losses are divided by.

    Args:
        examples: All examples.
        sequences: Rows of tokens that features are compared on: one per example, or one per choice of it.
        tokens: Their tokens.
        labels: Labels that are not -100; all examples where there are none.
    """

    examples: Tensor
    sequences: Tensor
    tokens: Tensor
    labels: Tensor

    @classmethod
    def of(cls, batch: Batch, problem_type: str | None = None) -> "UnitCounts":
        """Counts the units of a (micro-)batch; the problem type is what [`feature_mask`] takes."""
        mask, labels = feature_mask(batch, problem_type), batch.get("labels")
        examples = torch.tensor(len(token_mask(batch)), device=mask.device)
        known = examples if labels is None else (labels != IGNORED_LABEL).sum()
        return cls(examples, mask.any(dim=-1).sum(), mask.sum(), known)


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

    Of classes the divergence, or what `output_loss` says, where there is a label: of an example, or of a token where
    the logits are per token. Over the non-padding positions for the start and end of a span; per label for several
    labels; squared difference for regression.

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
    labels = batch.get("labels")
    if labels is None:
        return partial(of_classes, normalizer=counts.examples)
    return partial(of_classes, normalizer=counts.labels, mask=labels.view(logits[0].shape[:-1]) != IGNORED_LABEL)


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


def feature_mask(batch: Batch, problem_type: str | None = None) -> Tensor:
    """1 for tokens whose features are compared, `[rows, length]`: all, but for those of examples with the label -100.

    A text whose class is unknown is left out of every loss. Tokens without a label in a text that has others are its
    context, and count.

    Args:
        batch: Inputs of a model, labels included. Each choice of multiple choice is a row.
        problem_type: The `config.problem_type` of the model: -100 is a value like any other of a `"regression"`.
    """
    mask, labels = token_mask(batch), batch.get("labels")
    if labels is not None and labels.dim() == 1 and not labels.is_floating_point() and problem_type != "regression":
        mask = mask * (labels != IGNORED_LABEL).view(-1, *[1] * (mask.dim() - 1))
    return mask.flatten(end_dim=-2)
