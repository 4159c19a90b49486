"""From the predictions that a run of a benchmark left to the files that the benchmark's server takes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from .benchmark_training import predictions_file, training_folder
from .benchmarks import find_task
from .predictions import Predictions
from .submission import write_submission
from .task_result import TaskResult


def submit(
    benchmark: str, results: Sequence[TaskResult], output_dir: str | Path, folder: str | Path, partial: bool = True
) -> list[Path]:
    """Writes one zip for each size and seed.

    Args:
        benchmark: `"glue"` or `"super_glue"`.
        results: What [`run_benchmark`] gave.
        output_dir: The folder that it wrote.
        folder: Where to.
        partial: Whether tasks may be missing, which is logged; the server wants all.

    Returns:
        The files, by seed and size.

    Raises:
        ValueError: If no test split was predicted, or a task is missing while `partial` is False.
    """
    paths = []
    of_splits = [result for result in results if result.fold is None]
    for seed in dict.fromkeys(result.seed for result in of_splits):
        chosen = {result.task: result for result in of_splits if result.seed == seed}
        for size in next(iter(chosen.values())).costs:
            predictions = {
                name: {
                    split: Predictions.load(predictions_file(training_folder(output_dir, name, seed), split, size))
                    for split in find_task(benchmark, name).test_splits
                    if split in result.rows
                }
                for name, result in chosen.items()
            }
            path = Path(folder) / f"{benchmark}-{size}-seed-{seed}.zip"
            paths.append(submit_predictions(path, benchmark, predictions, partial))
    return paths


def submit_predictions(
    path: str | Path, benchmark: str, predictions: Mapping[str, Mapping[str, Predictions]], partial: bool = True
) -> Path:
    """Writes the zip for the test splits that were predicted.

    Args:
        path: The zip to write.
        benchmark: `"glue"` or `"super_glue"`.
        predictions: What was predicted, by task and split. Of two forms of a task the original counts.
        partial: Whether tasks may be missing, which is logged; the server wants all.

    Returns:
        The path.

    Raises:
        ValueError: If no test split was predicted, or a task is missing while `partial` is False.
    """
    tasks = [find_task(benchmark, name) for name in predictions]
    answers = {
        (task.name, split): (of_split.rows, of_split.answers)
        for task in tasks
        if task.form_of not in predictions
        for split, of_split in predictions[task.name].items()
        if split in task.test_splits
    }
    if not answers:
        raise ValueError(f"No test split of {', '.join(predictions)} was there to predict.")
    return write_submission(path, benchmark, answers, partial=partial)
