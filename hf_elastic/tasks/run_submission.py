"""From the predictions that a run of a benchmark left to the files that the benchmark's server takes."""

from collections.abc import Sequence
from pathlib import Path

from .benchmark_run import PREDICTIONS_FOLDER, training_folder
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
        chosen = [r for name, r in chosen.items() if find_task(benchmark, name).form_of not in chosen]
        for size in chosen[0].costs:
            answers = {}
            for result in chosen:
                task = find_task(benchmark, result.task)
                for split in (split for split in task.test_splits if split in result.rows):
                    path = training_folder(output_dir, task.name, seed) / PREDICTIONS_FOLDER / split / f"{size}.npz"
                    predictions = Predictions.load(path)
                    answers[task.name, split] = (predictions.rows, predictions.answers)
            if not answers:
                raise ValueError(f"No test split of {', '.join(r.task for r in chosen)} was there to predict.")
            path = Path(folder) / f"{benchmark}-{size}-seed-{seed}.zip"
            paths.append(write_submission(path, benchmark, answers, partial=partial))
    return paths
