"""What a subnet learns from another model on the same inputs: the objective that fits the head, over the right units.

The head is told from its outputs, so that a teacher may be any transformers model with the same kind of outputs.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from .feature_objectives import align_hidden_states
from .objectives import binary_kl, kl_divergence, logit_mse

IGNORED_LABEL = -100
TARGETS = ("labels", "start_positions", "end_positions")

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


class Reference(NamedTuple):
    """Outputs to learn from, detached.

    Shape:
        logits: one tensor, or two where the head predicts the start and the end of a span.
        hidden_states: `[examples, length, hidden]` each, the embeddings' output first; None without alignment.
    """

    logits: tuple[Tensor, ...]
    hidden_states: tuple[Tensor, ...] | None

    @classmethod
    def of(cls, outputs: ModelOutput) -> "Reference":
        """Keeps what is needed of a model's outputs, without its graph."""
        hidden_states = outputs.get("hidden_states")
        return cls(
            tuple(logits.detach() for logits in logits_of(outputs)),
            hidden_states and tuple(state.detach() for state in hidden_states),
        )


def teach(teacher: nn.Module, batch: Batch, output_hidden_states: bool) -> Reference:
    """Runs a teacher on a batch.

    Args:
        teacher: Any transformers model with the head of the student; inputs that it does not know are left out.
        batch: Inputs of the student.
        output_hidden_states: Whether they are needed.

    Returns:
        The teacher's outputs.
    """
    known = inspect.signature(teacher.forward).parameters
    inputs = {name: value for name, value in batch.items() if name in known and name not in TARGETS}
    with torch.no_grad():
        return Reference.of(teacher(**inputs, output_hidden_states=output_hidden_states, return_dict=True))


def soft_loss(
    outputs: ModelOutput,
    reference: Reference,
    batch: Batch,
    counts: UnitCounts,
    temperature: float = 1.0,
    problem_type: str | None = None,
) -> Tensor:
    """Loss of a student's predictions against a reference's.

    KL divergence for classes; per labelled token where the logits are per token; over the non-padding positions for
    the start and end of a span; per label for several labels; squared difference for regression. Where the problem
    type is unset it is told as the model does: one output means regression, floating point labels mean several labels.

    Args:
        outputs: Outputs of the student.
        reference: What it learns from.
        batch: Their inputs, labels included.
        counts: Units of the whole accumulated batch.
        temperature: Divides the logits of both sides.
        problem_type: The student's `config.problem_type`.

    Returns:
        Scalar loss.
    """
    objective = _objective_for(outputs, batch, counts, temperature, problem_type)
    pairs = zip(logits_of(outputs), reference.logits, strict=True)
    return torch.stack([objective(student, teacher) for student, teacher in pairs]).mean()


def _objective_for(
    outputs: ModelOutput, batch: Batch, counts: UnitCounts, temperature: float, problem_type: str | None
) -> Callable[[Tensor, Tensor], Tensor]:
    divergence = partial(kl_divergence, temperature=temperature)
    if "start_logits" in outputs:
        return partial(divergence, normalizer=counts.examples, class_mask=token_mask(batch))
    if outputs.logits.dim() == 3:
        return partial(divergence, normalizer=counts.labels, mask=batch["labels"] != IGNORED_LABEL)
    if problem_type == "regression" or (problem_type is None and outputs.logits.shape[-1] == 1):
        return partial(logit_mse, normalizer=counts.examples)
    if problem_type == "multi_label_classification" or (problem_type is None and batch["labels"].is_floating_point()):
        return partial(binary_kl, temperature=temperature, normalizer=counts.examples)
    return partial(divergence, normalizer=counts.examples)


def hidden_loss(outputs: ModelOutput, reference: Reference, batch: Batch, counts: UnitCounts) -> Tensor:
    """Loss of a student's hidden states against a reference's, on non-padding positions.

    A subnet with a smaller hidden size has the leading units of the supernet, and is compared with those.

    Args:
        outputs: Outputs of the student, hidden states included.
        reference: What it learns from, hidden states included.
        batch: Their inputs.
        counts: Units of the whole accumulated batch.

    Returns:
        Scalar loss.
    """
    mask = token_mask(batch).flatten(end_dim=-2)  # the choices of multiple choice are rows of the hidden states
    width = outputs.hidden_states[0].shape[-1]
    states = tuple(state[..., :width] for state in reference.hidden_states)
    return align_hidden_states(outputs.hidden_states, states, mask, normalizer=counts.tokens)


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
