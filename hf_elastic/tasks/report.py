"""What a family scores on the tasks of a benchmark: a table by task and size, and a picture."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..hub.table import UNKNOWN, markdown_table, with_unit
from .averages import BenchmarkAverage, benchmark_average, mean_score
from .benchmarks import find_task, tasks_of
from .seed_ensembles import seed_ensembles
from .task_result import RESULT_NAME, Scores, SizeCost, TaskResult

AVERAGE = "average"
# A correlation below it is noise about 0, of which no share is given.
LEAST_SCORE = 0.01


@dataclass(frozen=True)
class SizeScore:
    """What a size scores on a task, over all seeds and folds.

    Args:
        task: Name of the task, or [`AVERAGE`].
        size: Name of the size; of an ensemble, with what it is.
        mean: Mean of the benchmark's score, in points of 100.
        spread: Standard deviation over seeds and folds; None of a single one.
        kept: Share of the largest size's mean, in percent; None if that is less than [`LEAST_SCORE`].
        robust: Share of its own score that the size keeps on perturbed texts, in percent; None if it was not measured.
        elsewhere: Share of its own score that the size keeps on rows of other domains, likewise.
        number: How many seeds and folds.
        cost: What the size costs; None of the average.
        is_ensemble: Whether the seeds answer together, and not each alone.
    """

    task: str
    size: str
    mean: float
    spread: float | None
    kept: float | None
    robust: float | None
    elsewhere: float | None
    number: int
    cost: SizeCost | None
    is_ensemble: bool = False


def size_scores(results: Sequence[TaskResult], ensembles: Sequence[TaskResult] = ()) -> list[SizeScore]:
    """Sums up results: one row for each task and size, and the average over the tasks.

    A task's score is the mean of its metrics, and of its splits, as the benchmark averages them. Results without
    scores, whose labels are hidden, are left out.

    Args:
        results: Of one benchmark.
        ensembles: What [`seed_ensembles`] gave: a row more for each of their sizes.
    """
    scored = [result for result in results if result.scores]
    rows: list[SizeScore] = []
    for name in dict.fromkeys(result.task for result in scored):
        of_task = [result for result in scored if result.task == name]
        task_rows = _rows(name, of_task, [_task_scores(result) for result in of_task])
        together = next((of for of in ensembles if of.task == name), None)
        rows += task_rows if together is None else _with_ensemble(task_rows, _task_scores(together), together.costs)
    if averages := _averages(scored):
        average_rows = _rows(AVERAGE, scored, [_values(of) for of in averages])
        together = _averages(ensembles)
        are_all = bool(together) and _tasks(together[0]) == _tasks(averages[0])
        rows += _with_ensemble(average_rows, _values(together[0])) if are_all else average_rows
    return rows


def score_table(rows: Sequence[SizeScore]) -> list[dict[str, str]]:
    """Gives the rows for a table, keyed by column titles.

    Args:
        rows: What [`size_scores`] gave.
    """
    shares = {"robust": [row.robust for row in rows], "elsewhere": [row.elsewhere for row in rows]}
    measured = {name: of_rows for name, of_rows in shares.items() if any(share is not None for share in of_rows)}
    return [
        {
            "task": row.task,
            "size": row.size,
            "score": f"{row.mean:.1f}" if row.spread is None else f"{row.mean:.1f} ± {row.spread:.1f}",
            "kept": _percent(row.kept),
            **{name: _percent(of_rows[i]) for name, of_rows in measured.items()},
            "parameters": UNKNOWN if row.cost is None else with_unit(row.cost.parameters),
            "encoder": UNKNOWN if row.cost is None else with_unit(row.cost.encoder_parameters),
            "FLOPs": UNKNOWN if row.cost is None else with_unit(row.cost.flops),
            "ms": UNKNOWN if row.cost is None else f"{row.cost.milliseconds:.1f}",
        }
        for i, row in enumerate(rows)
    ]


def write_report(results: Sequence[TaskResult], folder: str | Path) -> list[SizeScore]:
    """Writes `report.md` and `report.png` into a folder.

    Args:
        results: Of one benchmark.
        folder: The folder of the run, with its predictions, of which the ensembles of several seeds are made.

    Returns:
        The rows of the table.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If no result has scores.
    """
    rows = size_scores(results, seed_ensembles(results, folder))
    if not rows:
        raise ValueError("None of the results has scores: only splits with hidden labels were predicted.")
    benchmark = results[0].benchmark
    lines = [f"# {benchmark} by size", "", markdown_table(score_table(rows)), "", *_notes(results)]
    Path(folder, "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw_scores(rows, Path(folder, "report.png"), f"{benchmark}: what each size keeps of the largest one's score")
    return rows


def with_saved(results: Sequence[TaskResult], folder: str | Path) -> list[TaskResult]:
    """Adds what earlier runs left in the same folder: other tasks, and further seeds of these that were run alike.

    Args:
        results: Of one benchmark, the latest.
        folder: The folder of the runs.

    Returns:
        All of them, in the order of the benchmark's tasks, then of seeds and folds.
    """
    found = {(of.task, of.seed, of.fold): of for of in results}
    tasks = list(tasks_of(results[0].benchmark))
    for path in Path(folder).glob(f"*/seed-*/{RESULT_NAME}"):
        saved = TaskResult.load(path.parent)
        alike = [of for of in results if of.task == saved.task]
        if saved.benchmark == results[0].benchmark and (not alike or _alike(saved, alike[0])):
            found.setdefault((saved.task, saved.seed, saved.fold), saved)
    return sorted(found.values(), key=lambda of: (tasks.index(of.task), of.seed, of.fold or 0))


def _alike(one: TaskResult, other: TaskResult) -> bool:
    """Whether two results differ in their seeds alone, and in what a seed chooses."""
    requests = [json.loads(json.dumps(of.request)) for of in (one, other)]
    for request in requests:
        request.pop("data", None)  # what is held out for the want of validation rows depends on the seed
        request.get("settings", {}).pop("seed", None)
    return requests[0] == requests[1]


def draw_scores(rows: Sequence[SizeScore], path: Path, title: str) -> None:
    """Draws what each size keeps of the largest one's score against its number of parameters, a line for each task.

    Args:
        rows: What [`size_scores`] gave.
        path: The PNG file to write.
        title: What stands above.
    """
    # The object API: pyplot would change the process's backend and keep the figure alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for row in rows if not row.is_ensemble]
    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    millions = {row.size: row.cost.encoder_parameters / 1e6 for row in rows if row.cost is not None}
    shown = [row for row in rows if row.kept is not None]
    for name in dict.fromkeys(row.task for row in shown):
        of_task = sorted((row for row in shown if row.task == name), key=lambda row: millions[row.size])
        is_average = name == AVERAGE
        axes.plot(
            [millions[row.size] for row in of_task],
            [row.kept for row in of_task],
            label=name,
            marker="o",
            linewidth=3 if is_average else 1.2,
            color="black" if is_average else None,
        )
    for row in (row for row in shown if row.task == shown[-1].task):
        position = (millions[row.size], row.kept)
        axes.annotate(row.size, position, xytext=(0, -14), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xlabel("parameters of the encoder in millions")
    axes.set_ylabel("score kept (%)")
    axes.set_title(title, fontsize=11)
    axes.grid(color="#e4e7eb", linewidth=0.8)
    if shown:
        axes.legend(frameon=False, ncols=2)
    figure.savefig(path, format="png", dpi=160, metadata={"Software": None})


def _reported_scores(result: TaskResult) -> Scores:
    """The scores that the benchmark goes by: of a labelled test split only where there is no other."""
    splits = find_task(result.benchmark, result.task).validation_splits
    return {split: scores for split, scores in result.scores.items() if split in splits} or result.scores


def _task_scores(result: TaskResult) -> dict[str, float]:
    """The task's score by size: the mean over the splits that it is reported on."""
    task = find_task(result.benchmark, result.task)
    by_size: dict[str, list[float]] = {}
    for by_name in _reported_scores(result).values():
        for size, metrics in by_name.items():
            by_size.setdefault(size, []).append(mean_score(task, metrics))
    return {size: statistics.mean(scores) for size, scores in by_size.items()}


def _averages(results: Sequence[TaskResult]) -> list[dict[str, BenchmarkAverage]]:
    """The benchmark's average by size, for each seed and fold; only where all have the same tasks."""
    parts: dict[tuple[int, int | None], list[TaskResult]] = {}
    for result in results:
        if find_task(result.benchmark, result.task).model_of is None and _validation_scores(result):
            parts.setdefault((result.seed, result.fold), []).append(result)
    tasks = [{_counted(result) for result in of_part} for of_part in parts.values()]
    if not tasks or len(tasks[0]) < 2 or any(of_part != tasks[0] for of_part in tasks):
        return []
    return [
        {
            size: benchmark_average(
                of_part[0].benchmark,
                {
                    result.task: {split: by_size[size] for split, by_size in _validation_scores(result).items()}
                    for result in of_part
                },
            )
            for size in of_part[0].costs
        }
        for of_part in parts.values()
    ]


def _values(averages: dict[str, BenchmarkAverage]) -> dict[str, float]:
    return {size: average.value for size, average in averages.items()}


def _tasks(averages: dict[str, BenchmarkAverage]) -> tuple[str, ...]:
    return next(iter(averages.values())).tasks


def _counted(result: TaskResult) -> str:
    """The task that counts in the average, of which the result's may be another form."""
    return find_task(result.benchmark, result.task).form_of or result.task


def _validation_scores(result: TaskResult) -> Scores:
    """The scores that the benchmark averages, if all are there; a fold stands for all validation splits."""
    splits = find_task(result.benchmark, result.task).validation_splits
    if result.fold is not None:
        return dict.fromkeys(splits, next(iter(result.scores.values())))
    return {split: result.scores[split] for split in splits} if all(s in result.scores for s in splits) else {}


def _rows(name: str, results: Sequence[TaskResult], scores: Sequence[dict[str, float]]) -> list[SizeScore]:
    """The rows of a task, or of the average, which no model has the costs of."""
    means = {size: 100 * statistics.mean(of[size] for of in scores) for size in results[0].costs}
    largest = next(iter(means.values()))
    is_task = name != AVERAGE
    return [
        SizeScore(
            name,
            size,
            mean,
            100 * statistics.stdev(of[size] for of in scores) if len(scores) > 1 else None,
            _share(mean / 100, largest / 100),
            _share_kept(results, size, [of.robustness for of in results]) if is_task else None,
            _share_kept(results, size, [_scores_elsewhere(of) for of in results]) if is_task else None,
            len(scores),
            results[0].costs[size] if is_task else None,
        )
        for size, mean in means.items()
    ]


def _with_ensemble(
    rows: Sequence[SizeScore], scores: Mapping[str, float], costs: Mapping[str, SizeCost] | None = None
) -> list[SizeScore]:
    """The rows, each before that of all its seeds together; shares are of the same largest mean."""
    largest = rows[0].mean / 100
    both = []
    for row in rows:
        score, cost = scores[row.size], None if costs is None else costs[row.size]
        together = replace(
            row,
            size=f"{row.size}, ensemble of {row.number} seeds",
            mean=100 * score,
            spread=None,
            kept=_share(score, largest),
            robust=None,
            elsewhere=None,
            cost=cost,
            is_ensemble=True,
        )
        both += [row, together]
    return both


def _share_kept(results: Sequence[TaskResult], size: str, others: Sequence[Scores]) -> float | None:
    """The mean share of its score that a size keeps on other texts of each result, in percent."""
    shares = []
    for result, scores in zip(results, others, strict=True):
        task, own = find_task(result.benchmark, result.task), next(iter(result.scores.values()))
        before = mean_score(task, own[size])
        shares += [_share(mean_score(task, of[size]), before) for of in scores.values()]
    return None if not shares or None in shares else statistics.mean(shares)


def _scores_elsewhere(result: TaskResult) -> Scores:
    return {name: of.scores for name, of in result.out_of_domain.items()}


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1f}%"


def _share(score: float, of_score: float) -> float | None:
    """One score in percent of another; None of one that is not above chance, of which a share says nothing."""
    return 100 * score / of_score if of_score >= LEAST_SCORE else None


def _notes(results: Sequence[TaskResult]) -> list[str]:
    lines = []
    for result in {result.task: result for result in results}.values():
        splits = ", ".join(f"{split} {number}" for split, number in result.rows.items())
        lines.append(f"- {result.task}: rows {splits}; FLOPs and ms are of {result.sequence_length} tokens.")
    for result in results:
        task = find_task(result.benchmark, result.task)
        for name, others in result.out_of_domain.items():
            scores = ", ".join(f"{size} {100 * mean_score(task, of):.1f}" for size, of in others.scores.items())
            lines.append(f"- {result.task} on {name}, {others.rows} rows, seed {result.seed}: {scores}.")
    for of in _averages(results)[:1]:
        average = next(iter(of.values()))
        missing = f"; {', '.join(average.missing)} missing, so it is not the benchmark's" if average.missing else ""
        lines.append(f"- {AVERAGE}: of {', '.join(average.tasks)}{missing}.")
    return lines
