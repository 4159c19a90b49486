"""The arguments that the fine-tunings of these benchmarks have in common."""

import tempfile
from typing import TypeVar

from transformers import TrainingArguments

Arguments = TypeVar("Arguments", bound=TrainingArguments)


def fine_tuning_arguments(
    arguments_class: type[Arguments], epochs: float, seed: int, batch_size: int = 32
) -> Arguments:
    """Gives arguments that suit MiniLM on small tasks, with batches of texts of like length."""
    return arguments_class(
        tempfile.mkdtemp(),
        num_train_epochs=epochs,
        per_device_train_batch_size=batch_size,
        learning_rate=1e-4,
        warmup_steps=0.1,
        train_sampling_strategy="group_by_length",
        seed=seed,
        save_strategy="no",
        report_to="none",
    )
