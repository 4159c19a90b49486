"""`hf-elastic glue` and `hf-elastic superglue`: every task of a benchmark, for every size."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from .display import console, show_phase, show_table
from .options import Arguments, OutputDir, Subnets, choose_sizes, read_arguments, read_named
from .training_options import without_options


def benchmark_command(benchmark: str, name: str, title: str) -> Callable[..., None]:
    """Makes the command of a benchmark.

    Args:
        benchmark: `"glue"` or `"super_glue"`.
        name: Name of the command.
        title: Name of the benchmark for readers.
    """

    def run(
        task: Annotated[list[str], typer.Option("--task", help="Name of a task; repeat it. `all` is the benchmark.")],
        output_dir: OutputDir,
        model: Annotated[
            str | None, typer.Option(help="Folder or Hub id of the checkpoint that each task begins with.")
        ] = None,
        init_from: Annotated[
            str | None,
            typer.Option(help="The same, but only its encoder: for one that was trained on another task before."),
        ] = None,
        data_dir: Annotated[
            str | None,
            typer.Option(help=f"Folder with {benchmark}/<task>/<split>.parquet, or a Hub id. (default: the Hub's)"),
        ] = None,
        subnet: Subnets = None,
        seed: Annotated[
            list[int] | None, typer.Option(help="Seed of a training of its own; repeat it. (default: 42)")
        ] = None,
        folds: Annotated[int, typer.Option(help="Cross-validate on the training rows in so many parts.")] = 0,
        calibrate: Annotated[
            float,
            typer.Option(help="Part of the training rows to hold out for fitting temperature and threshold."),
        ] = 0.0,
        robustness: Annotated[
            bool, typer.Option("--robustness", help="Score on texts with typos, other case and order as well.")
        ] = False,
        out_of_domain: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME=FILE",
                help="Labelled rows of another domain, with the columns of the task, to score on as well. Repeat it.",
            ),
        ] = None,
        multi_task: Annotated[
            str | None,
            typer.Option(
                help="Train the tasks on one encoder, with the settings of no task, and let each come: `proportional` "
                "to its rows, to their `square_root`, `uniform`, by `temperature`, or `dynamic`, the more the farther "
                "it is from its best."
            ),
        ] = None,
        temperature: Annotated[
            float | None,
            typer.Option(help="Of --multi-task temperature: 1 is proportional, more is towards uniform. (default: 2)"),
        ] = None,
        max_length: Annotated[int | None, typer.Option(help="Tokens to which a text is cut.")] = None,
        batch_size: Annotated[
            int | None, typer.Option(help="Rows per step. (default: 32, or what suits the task)")
        ] = None,
        learning_rate: Annotated[float | None, typer.Option(help="Highest learning rate. (default: 5e-05)")] = None,
        finetune_epochs: Annotated[
            float | None, typer.Option(help="Epochs of the full model alone. (default: 2, or what suits the task)")
        ] = None,
        cotrain_epochs: Annotated[
            float | None, typer.Option(help="Epochs of all sizes together. (default: 2, or what suits the task)")
        ] = None,
        rank_examples: Annotated[
            int | None,
            typer.Option(help="Training rows to rank the units by. (default: 256; 0 for a supernet that was trained)"),
        ] = None,
        train_rows: Annotated[int | None, typer.Option(help="Training rows to use. (default: all)")] = None,
        argument: Arguments = None,
        submission: Annotated[
            Path | None, typer.Option(help="Folder for the files that the benchmark's server takes, a zip per size.")
        ] = None,
    ) -> None:
        from ..hub.request import check_extra
        from ..tasks.benchmark_request import BenchmarkRequest
        from ..tasks.benchmark_run import run_benchmark
        from ..tasks.report import score_table, with_saved, write_report
        from ..tasks.run_submission import submit
        from ..tasks.task_mixture import Mixing

        check_extra("matplotlib")  # of the report, which comes last
        if (model is None) == (init_from is None):
            raise typer.BadParameter("Give a checkpoint as --model, or as --init-from.")
        if temperature is not None and multi_task != "temperature":
            raise typer.BadParameter("--temperature is of --multi-task temperature: give that, or leave it out.")
        if folds and submission is not None:
            raise typer.BadParameter("--submission is of test splits, which --folds does not predict: leave one out.")
        given: dict[str, Any] = {
            "max_length": max_length,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "finetune_epochs": finetune_epochs,
            "cotrain_epochs": cotrain_epochs,
            "rank_examples": rank_examples,
            "train_rows": train_rows,
            **without_options(read_arguments(argument)),
        }
        source = model or init_from
        given_temperature = {} if temperature is None else {"temperature": temperature}
        request = BenchmarkRequest(
            benchmark,
            source,
            new_head=model is None,
            data=data_dir,
            sizes=choose_sizes(subnet, None, source),
            settings={name: value for name, value in given.items() if value is not None},
            seeds=seed or [42],
            folds=folds,
            held_out_fraction=calibrate,
            robustness=robustness,
            out_of_domain=read_named("--out-of-domain", out_of_domain, "reviews=reviews.csv"),
            mixing=None if multi_task is None else Mixing(multi_task, **given_temperature),
        )
        run = run_benchmark(request, task, output_dir, _announce, show_phase)
        if any(result.scores for result in run.results):
            reported = with_saved(run.results, output_dir)
            show_table(score_table(write_report(reported, output_dir)), title, texts=("size",))
            console.print(f"The report lies in {output_dir / 'report.md'}.", markup=False)
        if run.failures:
            failed = "; ".join(f"{of}: {error}" for of, error in run.failures.items())
            raise RuntimeError(f"{len(run.failures)} of the trainings failed, run again for these alone: {failed}")
        if submission is not None:
            for path in submit(benchmark, run.results, output_dir, submission):
                console.print(f"For the server: {path}", markup=False)

    run.__name__ = name
    run.__doc__ = f"Train, evaluate and report all sizes on tasks of {title}."
    return run


def _announce(training: str) -> None:
    console.rule(f"[bold]{escape(training)}")


glue = benchmark_command("glue", "glue", "GLUE")
superglue = benchmark_command("super_glue", "superglue", "SuperGLUE")
