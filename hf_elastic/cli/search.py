"""`hf-elastic search`: from a budget to a size that keeps it."""

from typing import TYPE_CHECKING, Annotated

import typer

from .display import console, metric_rows, show_phase, show_table
from .options import (
    ConfigName,
    Data,
    LabelColumn,
    OutputDir,
    Overwrite,
    Regression,
    Split,
    Supernet,
    TextColumns,
    check_output_dir,
    read_data,
)

if TYPE_CHECKING:
    from ..size_search import SizeSearch


def search(
    supernet: Supernet,
    data: Data,
    output_dir: OutputDir,
    max_latency_ms: Annotated[
        float | None, typer.Option(help="Milliseconds of one pass on this machine.", show_default=False)
    ] = None,
    max_memory_mb: Annotated[
        float | None, typer.Option(help="Megabytes of weights, on disk and in memory.", show_default=False)
    ] = None,
    max_params: Annotated[
        float | None, typer.Option(help="Parameters, embeddings included, e.g. 14e6.", show_default=False)
    ] = None,
    max_flops: Annotated[
        float | None, typer.Option(help="Operations of one pass, e.g. 3e8.", show_default=False)
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the size that is found.")] = "found",
    n: Annotated[int, typer.Option("--number", "-n", min=1, help="Sizes to name: the best, and smaller ones.")] = 1,
    member: Annotated[
        bool, typer.Option("--member", help="Write the best size as a checkpoint of its own, not the supernet.")
    ] = False,
    metric: Annotated[str | None, typer.Option(help="Metric to choose by. (default: the first)")] = None,
    choices: Annotated[
        str, typer.Option(help="What is chosen: 'layers' (the widths of each) or 'model' (one for all).")
    ] = "layers",
    method: Annotated[str, typer.Option(help="How sizes are drawn: 'nsga2' or 'tpe'.")] = "nsga2",
    candidates: Annotated[int, typer.Option(min=1, help="Sizes that are scored at most.")] = 200,
    finalists: Annotated[int, typer.Option(min=1, help="Sizes that the metric decides among.")] = 8,
    max_minutes: Annotated[float | None, typer.Option(help="Minutes that the search may take.")] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="File or database URL to keep scores in, to go on or to search under another budget."),
    ] = None,
    proxy_rows: Annotated[int, typer.Option(min=1, help="Training rows to rank sizes by.")] = 512,
    importance_rows: Annotated[
        int, typer.Option(min=0, help="Training rows to score heads and neurons by; 0 leaves this out.")
    ] = 256,
    sequence_length: Annotated[int, typer.Option(min=1, help="Tokens of a pass, for FLOPs and latency.")] = 128,
    rows_per_pass: Annotated[int, typer.Option(min=1, help="Texts of a pass, likewise.")] = 1,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of a pass. (default: as torch is set)")] = None,
    config_name: ConfigName = None,
    split: Split = None,
    validation: Annotated[
        str | None, typer.Option(help="Split or file to choose by. (default: found by its name, else held out)")
    ] = None,
    test: Annotated[
        str | None, typer.Option(help="Split or file to report on. (default: the test split, else half of validation)")
    ] = None,
    text_column: TextColumns = None,
    label_column: LabelColumn = None,
    regression: Regression = False,
    max_length: Annotated[int, typer.Option(help="Tokens to which a text is cut.")] = 128,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows per step of scoring.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 42,
    overwrite: Overwrite = False,
) -> None:
    """Find the best size of a trained supernet within a budget; give it the data that it was trained on.

    Sizes are ranked on training rows, chosen on validation rows, and reported on test rows.
    """
    check_output_dir(output_dir, overwrite)
    from ..checkpoints import save_with_tokenizer
    from ..compression.extract import extract
    from ..compression.front_drawing import check_drawing
    from ..compression.latency_table import Workload
    from ..compression.score_archive import require_optuna
    from ..compression.search_settings import SearchSettings
    from ..size_search import search_text_classifier

    require_optuna()
    check_drawing()
    settings = SearchSettings(
        choices=choices,
        method=method,
        num_candidates=candidates,
        num_finalists=finalists,
        workload=Workload(sequence_length, rows_per_pass, threads),
        max_minutes=max_minutes,
        storage=storage,
        seed=seed,
    )
    given = {
        "max_params": max_params,
        "max_flops": max_flops,
        "max_latency_ms": max_latency_ms,
        "max_memory_mb": max_memory_mb,
    }
    labelled = read_data(
        data,
        supernet,
        regression,
        split=split,
        config_name=config_name,
        validation=validation,
        test=test,
        text_columns=text_column,
        label_column=label_column,
        seed=seed,
    )
    has_test = labelled.test is not None
    run = search_text_classifier(
        supernet,
        labelled,
        given,
        n=n,
        name=name,
        metric=metric,
        settings=settings,
        max_length=max_length,
        batch_size=batch_size,
        proxy_rows=proxy_rows,
        importance_rows=importance_rows,
        seed=seed,
        on_phase=show_phase,
    )
    _show(run)
    scored_on = "test rows" if has_test else "validation rows, which nothing was chosen by"
    show_table(metric_rows(run.scores), f"Scores on {len(run.data.test)} {scored_on}")
    best = next(iter(run.result))
    save_with_tokenizer(extract(run.model, run.result[best]) if member else run.model, supernet, output_dir)
    run.result.save(output_dir)
    what = f"{best}, as a model of its own," if member else f"The supernet with {', '.join(run.result)}"
    console.print(f"{what} lies in {output_dir}, beside it all that was scored (search.json, search.png).")


def _show(run: "SizeSearch") -> None:
    result = run.result
    title = f"Sizes that no other one beats, by {result.cost}"
    show_table(result.table_rows(run.model.config), title, texts=("from",))
    if result.ending:
        console.print(result.ending)
    if result.table is not None:
        promised = result.best.costs.milliseconds
        console.print(
            f"{next(iter(result))} takes {result.member_ms:.2f} ms as a model of its own, {promised:.2f} ms were "
            f"predicted. Predictions of other sizes were {result.table.median_error:.1%} off at the median."
        )
