"""What a run of a benchmark leaves on disk, of random logits, for tests of what comes after it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hf_elastic.tasks.benchmark_training import predictions_file, training_folder
from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.predictions import Predictions
from hf_elastic.tasks.scoring import score
from hf_elastic.tasks.task_result import SizeCost, TaskResult
from hf_elastic.training.data_fingerprint import DataFingerprint

from .benchmark_rows import rows_of

SIZES = {"large": SizeCost(1000, 800, 4000, 2.0), "small": SizeCost(500, 300, 1000, 1.0)}


def predictions_of(benchmark: str, name: str, split: str, seed: int = 0, scale: float = 1.0) -> Predictions:
    """Predictions with random logits for the hand-written rows."""
    task, rows = find_task(benchmark, name), rows_of(benchmark, name, split)
    counts = [1 if name == "copa" else len(task.input_format.examples(row)) for row in rows]
    logits = np.random.default_rng(seed).normal(size=(sum(counts), task.labels.num_labels)) * scale
    return Predictions.of(task, split, rows, counts, logits.astype(np.float32))


def save_run(folder: Path, benchmark: str, name: str, seeds: Sequence[int] = (1,), first: int = 0) -> list[TaskResult]:
    """Writes the results and predictions of a task, with all splits, two sizes, and logits that begin with a seed."""
    task, results = find_task(benchmark, name), []
    for seed in seeds:
        scores, hashes = {}, {}
        for split in (*task.validation_splits, *task.test_splits):
            hashes[split] = DataFingerprint.of(rows_of(benchmark, name, split)).content_hash
            for number, size in enumerate(SIZES):
                predictions = predictions_of(benchmark, name, split, first + 10 * seed + number)
                predictions.save(predictions_file(training_folder(folder, name, seed), split, size))
                if predictions.labels is not None:
                    of_size = score(task, predictions.labelled_rows, predictions.answers)
                    scores.setdefault(split, {})[size] = of_size
        rows = {split: len(rows_of(benchmark, name, split)) for split in hashes}
        results.append(TaskResult(benchmark, name, seed, {"data": hashes}, scores, SIZES, 64, rows))
        results[-1].save(training_folder(folder, name, seed))
    return results
