"""Tiny models and data of every kind of head, for tests in this process and in others."""

import random
from pathlib import Path
from typing import Any

import torch
from transformers import EvalPrediction, PreTrainedModel, TrainerCallback

import hf_elastic
from hf_elastic import ElasticConfig, ElasticTrainer, ElasticTrainingArguments, SubnetConfig
from hf_elastic.modeling.modeling_elastic import ElasticPreTrainedModel
from tests.conftest import TINY, randomize

# Class and settings of each kind of head.
CASES = {
    "classification": ("ElasticForSequenceClassification", {"num_labels": 3}),
    "regression": ("ElasticForSequenceClassification", {"num_labels": 1}),
    "multi_label": (
        "ElasticForSequenceClassification",
        {"num_labels": 4, "problem_type": "multi_label_classification"},
    ),
    "masked_lm": ("ElasticForMaskedLM", {}),
    "token_classification": ("ElasticForTokenClassification", {"num_labels": 5}),
    "question_answering": ("ElasticForQuestionAnswering", {}),
    "multiple_choice": ("ElasticForMultipleChoice", {}),
}
NAMES = ["large", "base", "small", "tiny"]
CHOICES = 2
MAX_LENGTH = 12


def make_model(
    case: str, dropout: float = 0.0, layers: int = 4, seed: int = 0, **settings: Any
) -> ElasticPreTrainedModel:
    """A randomized supernet of the full size and three smaller ones; `settings` are others of its configuration."""
    class_name, of_case = CASES[case]
    config = ElasticConfig(
        **{**TINY, **of_case, "num_hidden_layers": layers, **settings},
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    config.subnets = {
        "large": SubnetConfig(),
        "base": SubnetConfig(num_attention_heads=3, intermediate_size=48),
        "small": SubnetConfig.scaled(config, width=0.5, depth=0.5),
        "tiny": SubnetConfig(layers=(0,), num_attention_heads=1, intermediate_size=16),
    }
    return randomize(getattr(hf_elastic, class_name)(config), seed)


def make_rows(case: str, number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Examples of different lengths with random labels."""
    rng = random.Random(seed)
    return [_make_row(case, rng) for _ in range(number)]


def make_learnable_rows(number: int) -> list[dict[str, Any]]:
    """Examples of a rule that the smallest encoder can learn: the class is the first token's."""
    return [{**row, "labels": row["input_ids"][0] % 3} for row in make_rows("classification", number)]


def make_fresh_model() -> ElasticPreTrainedModel:
    """A classifier with its own initial weights, which it can learn from."""
    torch.manual_seed(0)
    return hf_elastic.ElasticForSequenceClassification(make_model("classification").config)


def _make_row(case: str, rng: random.Random) -> dict[str, Any]:
    length = rng.randint(4, MAX_LENGTH)
    tokens = [rng.randrange(5, 99) for _ in range(length)]
    if case == "multiple_choice":
        return {"input_ids": [tokens, tokens[::-1]], "labels": rng.randrange(CHOICES)}
    if case == "question_answering":
        start = rng.randrange(length)
        return {"input_ids": tokens, "start_positions": start, "end_positions": rng.randrange(start, length)}
    labels = {
        "classification": lambda: rng.randrange(3),
        "regression": lambda: rng.gauss(0, 1),
        "multi_label": lambda: [float(rng.random() < 0.3) for _ in range(4)],
        # Rows differ in how many labels they have, so that means of means are not the mean.
        "masked_lm": lambda: [token if rng.random() < 0.4 else -100 for token in tokens],
        "token_classification": lambda: [-100] + [rng.randrange(5) for _ in tokens[1:]],
    }
    return {"input_ids": tokens, "labels": labels[case]()}


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Pads to the longest row; for spans to a fixed length, since their task loss takes padding for an answer."""
    nested = isinstance(rows[0]["input_ids"][0], list)
    sequences = [choice for row in rows for choice in row["input_ids"]] if nested else [r["input_ids"] for r in rows]
    shape = (len(rows), CHOICES, -1) if nested else (len(rows), -1)
    batch = {
        "input_ids": _pad(sequences, 0).view(shape),
        "attention_mask": _pad([[1] * len(sequence) for sequence in sequences], 0).view(shape),
    }
    if "start_positions" in rows[0]:
        missing = MAX_LENGTH - batch["input_ids"].shape[1]
        batch = {name: torch.nn.functional.pad(tensor, (0, missing)) for name, tensor in batch.items()}
    for name in rows[0].keys() - {"input_ids"}:
        values = [row[name] for row in rows]
        per_token = isinstance(values[0], list) and isinstance(values[0][0], int)
        batch[name] = _pad(values, -100) if per_token else torch.tensor(values)
    return batch


def _pad(sequences: list[list[int]], value: int) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(sequence) for sequence in sequences], batch_first=True, padding_value=value
    )


class GradientRecorder(TrainerCallback):
    """Keeps a copy of the gradients before each optimizer step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.steps.append(
            {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None},
        )


class LittleRoom:
    """Lets a model run out of memory in the last pass of a step, with more rows than there is room for.

    The passes before have left their gradients by then.

    Attributes:
        sizes: The rows of every last pass that was tried.
    """

    def __init__(self, model: ElasticPreTrainedModel, room: int) -> None:
        self.smallest, self.room, self.sizes = model.config.subnets["tiny"], room, []
        model.register_forward_pre_hook(self._check, with_kwargs=True)

    def _check(self, model: torch.nn.Module, positional: tuple, inputs: dict[str, Any]) -> None:
        if inputs["subnet"] == self.smallest:
            self.sizes.append(len(inputs["input_ids"]))
            if self.sizes[-1] > self.room:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def make_arguments(output_dir: str | Path, **settings: Any) -> ElasticTrainingArguments:
    """Arguments for the CPU, without reports, saving and progress bars unless the settings say otherwise."""
    defaults = {
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "max_grad_norm": 0.0,
    }
    return ElasticTrainingArguments(str(output_dir), **{**defaults, **settings})


def make_trainer(
    output_dir: str | Path,
    case: str = "classification",
    settings: dict[str, Any] | None = None,
    cls: type[ElasticTrainer] = ElasticTrainer,
    **keywords: Any,
) -> ElasticTrainer:
    """A trainer of a case; `settings` are training arguments, the others arguments of the trainer."""
    defaults = {
        "model": keywords.pop("model", None) or make_model(case),
        "args": make_arguments(output_dir, **(settings or {})),
        "train_dataset": make_rows(case, 64),
        "eval_dataset": make_rows(case, 16, seed=1),
        "data_collator": collate,
    }
    return cls(**{**defaults, **keywords})


def train(
    output_dir: str | Path,
    case: str = "classification",
    teacher: bool | PreTrainedModel = False,
    model: ElasticPreTrainedModel | None = None,
    **settings: Any,
) -> tuple[ElasticTrainer, list[dict[str, torch.Tensor]]]:
    """Trains a case, and gives the trainer and the gradients of each step; `True` is a teacher of six layers."""
    recorder = GradientRecorder()
    teachers = [make_model(case, layers=6, seed=5) if teacher is True else teacher] if teacher else None
    trainer = make_trainer(output_dir, case, settings, model=model, callbacks=[recorder], teachers=teachers)
    trainer.train()
    return trainer, recorder.steps


def logged(trainer: ElasticTrainer, name: str) -> list[float]:
    """What each training step logged under a name."""
    return [log[name] for log in trainer.state.log_history if "loss" in log and name in log]


def losses_of(trainer: ElasticTrainer) -> list[dict[str, float]]:
    """What each training step logged as a loss."""
    return [
        {key: value for key, value in log.items() if key == "loss" or "loss_" in key}
        for log in trainer.state.log_history
        if "loss" in log
    ]


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """The share of right classes."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def assert_same_gradients(actual: list[dict[str, torch.Tensor]], expected: list[dict[str, torch.Tensor]]) -> None:
    """Compares the gradients of each step, relative to the largest one of a parameter."""
    assert len(actual) == len(expected) > 0
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            tolerance = 1e-5 * max(theirs[name].abs().max().item(), 1e-2)
            torch.testing.assert_close(
                ours[name], theirs[name], rtol=1e-4, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
            )
