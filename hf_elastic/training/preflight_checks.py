"""The checks before a training that take seconds: communication, data, sizes and evaluation. They only run forward."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers.trainer_utils import unwrap_peft_model

from ..modeling.modeling_elastic import (
    ElasticForMaskedLM,
    ElasticForMultipleChoice,
    ElasticForSequenceClassification,
    ElasticForTokenClassification,
)
from .data_fingerprint import DataFingerprint
from .distillation import IGNORED_LABEL
from .preflight_report import CheckFailed, CheckSkipped, Finding
from .sampled_rows import SampledRows
from .trainer import ElasticTrainer
from .trials import make_trial

# Enough for any metric; a forward pass of so few rows takes no time.
_ROWS_AT_ONCE = 8
_EVALUATED_ROWS = 32
# What an evaluation gives beside metrics.
_OF_THE_EVALUATION = ("_runtime", "_per_second", "_preparation_time")
_COMPARED_STEPS = 100


@dataclass
class Preflight:
    """What the checks of one trainer share.

    Args:
        trainer ([`ElasticTrainer`]): The trainer.
        steps (`int`): Steps in which the loss has to fall.
    """

    trainer: ElasticTrainer
    steps: int

    @cached_property
    def trial(self) -> ElasticTrainer:
        """A trainer to read data and to run the model with, which leaves the first one alone."""
        trial = make_trial(self.trainer, {})
        trial.is_in_train = True  # an evaluation outside of a training may cast the weights
        trial._read_subnets()
        return trial

    @cached_property
    def rows(self) -> SampledRows:
        """Rows of the training data."""
        return SampledRows.of(self.trainer.train_dataset, self.trainer.args.seed)

    def collate(self, rows: list[Any]) -> dict[str, Any]:
        """Makes a batch as the training does."""
        return dict(self.trial._get_collator_with_removed_columns(self.trial.data_collator)(rows))

    def run_sizes(self, batch: Mapping[str, Any]) -> dict[str, tuple[Tensor | None, Any]]:
        """Runs every size on a batch without dropout and without gradients.

        Returns:
            Loss and outputs by size, the full model first.
        """
        model, outputs = self.trial.model, {}
        was_training = model.training
        model.eval()
        for name in sorted(self.trial.subnets, key=lambda name: name != self.trial.full_name):
            with self.trial.elastic_model.use_subnet(self.trial.subnets[name]):
                loss, output, _ = self.trial.prediction_step(model, dict(batch), prediction_loss_only=False)
            outputs[name] = loss, output
        model.train(was_training)
        return outputs


def check_communication(flight: Preflight) -> Finding:
    """Sums known numbers over all processes, and compares what has to be the same in each of them."""
    trainer = flight.trainer
    accelerator, args = trainer.accelerator, trainer.args
    processes = accelerator.num_processes
    if processes == 1:
        raise CheckSkipped("There is one process.")
    numbers = torch.arange(8.0, device=args.device) + accelerator.process_index
    total = accelerator.reduce(numbers, reduction="sum").tolist()
    expected = [processes * number + processes * (processes - 1) / 2 for number in range(8)]
    if total != expected:
        raise CheckFailed(
            f"The sum over {processes} processes is {total}, not {expected}.",
            "Check the network and the backend (ddp_backend), e.g. with NCCL_DEBUG=INFO.",
        )
    facts = {
        "seed": (args.seed, args.data_seed),
        "drawn sizes": [flight.trial.sampler.draw(step) for step in range(_COMPARED_STEPS)],
        "training data": DataFingerprint.of(trainer.train_dataset),
        "trainable weights": [
            (name, tuple(weight.shape)) for name, weight in trainer.model.named_parameters() if weight.requires_grad
        ],
    }
    for name, value in facts.items():
        values = gather_object([value])
        if any(other != values[0] for other in values):
            raise CheckFailed(
                f"The {name} of the processes differ.",
                "Give every process the same arguments, sizes, model and data; the trainer deals out the rows itself.",
            )
    return Finding(f"{processes} processes add up, and agree on seed, sizes and data.", {"processes": processes})


def check_data(flight: Preflight) -> Finding:
    """Collates the first, the longest and random rows, and looks at tokens, types and labels of the batches."""
    rows = flight.rows
    if not rows.everything:
        raise CheckFailed("The training data are empty.", "Check the path, the split and any filter.")
    size = flight.trainer.args.train_batch_size
    kept = rows.everything
    batches = [flight.collate(kept[start : start + size]) for start in range(0, len(kept), size)]
    for batch in batches:
        _check_tokens(batch, flight)
        _check_labels(batch, flight)
    longest, share = int(rows.lengths.max()), rows.cut_share
    total = "a stream of" if rows.total is None else f"{rows.total:,}"
    seen = f"{total} rows; {len(rows.lengths):,} of up to {longest} tokens looked at, the {len(rows.longest)} longest "
    seen += f"and {len(rows.rows)} of any length collated."
    if 0 < share < 1:  # all of one length are packed or padded ones
        seen += f" {share:.0%} have exactly {longest} tokens and were probably cut."
    types = {name: str(value.dtype) for name, value in batches[0].items() if isinstance(value, Tensor)}
    figures = {"rows": rows.total, "longest": longest, "cut_share": share, "columns": types}
    return Finding(seen[0].upper() + seen[1:], figures)


def _check_tokens(batch: Mapping[str, Any], flight: Preflight) -> None:
    tokens, mask = batch.get("input_ids"), batch.get("attention_mask")
    if tokens is None:
        return  # the model is given embeddings
    if not isinstance(tokens, Tensor) or tokens.is_floating_point():
        kind = str(tokens.dtype) if isinstance(tokens, Tensor) else type(tokens).__name__
        raise CheckFailed(f"input_ids are {kind}, not whole numbers in a tensor.", "Mend the data collator.")
    vocabulary = flight.trial.elastic_model.config.vocab_size
    wrong = tokens[(tokens < 0) | (tokens >= vocabulary)]
    if wrong.numel():
        raise CheckFailed(
            f"A row has token {wrong[0].item()}, but the model has vocab_size={vocabulary}.",
            "Use the tokenizer of the checkpoint, or resize the embeddings.",
        )
    if tokens.shape[-1] == 0 or (mask is not None and bool((mask.sum(dim=-1) == 0).any())):
        raise CheckFailed("A row has no tokens.", "Remove empty rows before the training.")


def _check_labels(batch: Mapping[str, Any], flight: Preflight) -> None:
    given = {name: batch[name] for name in flight.trial.label_names if batch.get(name) is not None}
    if not given:
        raise CheckFailed(
            f"The batches have no labels: the collator gives {', '.join(batch)}.",
            f"Name the column of the labels {flight.trial.label_names[0]!r}, or mend the data collator.",
        )
    for name, labels in given.items():
        if not isinstance(labels, Tensor):
            raise CheckFailed(f"{name} are a {type(labels).__name__}, not a tensor.", "Mend the data collator.")
        if labels.is_floating_point() and not bool(torch.isfinite(labels).all()):
            raise CheckFailed(f"{name} hold numbers that are not finite.", "Remove these rows, or fill the gaps.")
        counted = labels[labels != IGNORED_LABEL]
        if not counted.numel():
            raise CheckFailed(
                f"All {name} of a batch are {IGNORED_LABEL}, so that nothing is learned from it.",
                "Check how the labels are aligned with the tokens.",
            )
        classes = _count_classes(flight, labels, batch)
        wrong = counted[(counted < 0) | (counted >= classes)] if classes is not None else counted[:0]
        if wrong.numel():
            raise CheckFailed(
                f"A row has {name}={wrong[0].item()}, but there are {classes} classes, from 0 to {classes - 1}.",
                "Convert with as many labels as there are (num_labels), or encode the labels again.",
            )


def _count_classes(flight: Preflight, labels: Tensor, batch: Mapping[str, Any]) -> int | None:
    """How many classes the labels choose between, or None for numbers, spans and losses of the user's own."""
    model = unwrap_peft_model(flight.trial.elastic_model)
    if labels.is_floating_point() or flight.trial.compute_loss_func is not None:
        return None
    if isinstance(model, ElasticForMaskedLM):
        return model.config.vocab_size
    if isinstance(model, ElasticForMultipleChoice):
        return batch["input_ids"].shape[1]
    is_numeric = model.config.problem_type == "regression" or model.config.num_labels == 1
    if isinstance(model, ElasticForTokenClassification | ElasticForSequenceClassification) and not is_numeric:
        return model.config.num_labels
    return None


def check_sizes(flight: Preflight) -> Finding:
    """Runs the first and the longest rows through every size, and looks at weights, outputs and losses."""
    model = flight.trial.model
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise CheckFailed("All weights are frozen.", "Set requires_grad of what is to be trained.")
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise CheckFailed(
                f"The weight {name} has values that are not finite.",
                "Load the checkpoint again, or go back to one that was saved before.",
            )
    figures = {}
    for rows in (flight.rows.rows[:_ROWS_AT_ONCE], flight.rows.longest[:_ROWS_AT_ONCE]):
        outputs = flight.run_sizes(flight.collate(rows))
        shapes = {name: _shapes(output) for name, (_, output) in outputs.items()}
        expected = shapes[flight.trial.full_name]
        for name, (loss, output) in outputs.items():
            if not _is_finite(loss) or not _is_finite(output):
                raise CheckFailed(
                    f"Size {name!r} gives outputs or a loss that are not finite.",
                    "Look for overflow (use bf16 instead of fp16), and for weights or labels out of proportion.",
                )
            if shapes[name] != expected or any(shape[0] != len(rows) for shape in expected):
                raise CheckFailed(
                    f"Size {name!r} gives outputs of shape {shapes[name]} for {len(rows)} rows, the full model "
                    f"{expected}.",
                    "Check that the collator makes one row per example.",
                )
        figures = {name: round(loss.item(), 4) for name, (loss, _) in outputs.items()}
    losses = ", ".join(f"{name} {loss:.3g}" for name, loss in figures.items())
    return Finding(f"{len(figures)} sizes run, also on the longest rows. Losses: {losses}.", {"losses": figures})


def _shapes(output: Any) -> list[tuple[int, ...]]:
    parts = output if isinstance(output, tuple) else (output,)
    return [tuple(part.shape) for part in parts if isinstance(part, Tensor)]


def _is_finite(output: Any) -> bool:
    parts = output if isinstance(output, tuple) else (output,)
    return all(bool(torch.isfinite(part).all()) for part in parts if isinstance(part, Tensor))


def check_evaluation(flight: Preflight) -> Finding:
    """Evaluates every size on a few rows, and looks for the metric that chooses the best checkpoint."""
    trainer = flight.trainer
    if trainer.eval_dataset is None:
        raise CheckSkipped("There are no evaluation data.")
    trial = make_trial(trainer, {})
    trial.is_in_train = True
    trial.eval_dataset = rows = few_rows(trainer.eval_dataset, trainer.args.seed)
    metrics = trial.evaluate()
    wanted = trainer.args.metric_for_best_model
    name = None if wanted is None else f"eval_{wanted.removeprefix('eval_')}"
    if name is not None and name not in metrics:
        own = sorted(key for key in metrics if key != "epoch" and not key.endswith(_OF_THE_EVALUATION))
        raise CheckFailed(
            f"metric_for_best_model={wanted!r} is not among the metrics: {', '.join(own)}.",
            "Choose one of them.",
        )
    number = sum(map(len, rows.values())) if isinstance(rows, dict) else len(rows)
    chosen = "" if name is None else f" {name} is {metrics[name]:.3g}."
    figures = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    return Finding(f"{number} rows evaluated in {len(trial.subnets)} sizes.{chosen}", figures)


def few_rows(dataset: Any, seed: int) -> Any:
    """Gives some rows of evaluation data, in the same form: one list of them, or one per name; None for none.

    Args:
        dataset: A dataset, or a dictionary of them.
        seed: Seed of the choice.
    """
    if dataset is None:
        return None
    if isinstance(dataset, Mapping):
        return {name: few_rows(split, seed) for name, split in dataset.items()}
    return SampledRows.of(dataset, seed).rows[:_EVALUATED_ROWS]
