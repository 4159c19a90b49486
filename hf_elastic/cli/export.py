"""`hf-elastic export`: all sizes of a supernet become a family."""

from pathlib import Path
from typing import Annotated

import typer

from .display import conditions, console, show_table
from .options import OutputDir, Supernet


def export(
    supernet: Supernet,
    output_dir: OutputDir,
    size: Annotated[list[str] | None, typer.Option(help="A size to export; repeat it. (default: all)")] = None,
    format: Annotated[
        list[str] | None, typer.Option(help="A format, of which there is only safetensors so far.")
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(help="JSON file of metrics by size. (default: the one that `hf-elastic train` writes)"),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="Name or file of a recipe, for the cards. (default: what `hf-elastic train` wrote)"),
    ] = None,
    sequence_length: Annotated[int, typer.Option(help="Tokens for FLOPs and latency.")] = 128,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a former family in the folder.")] = False,
) -> None:
    """Write the sizes of a supernet as a family: a checkpoint and a card for each, and a manifest of them all."""
    from ..checkpoints import load_elastic, load_tokenizer
    from ..hub.details import TrainingDetails
    from ..hub.exporting import export_family
    from ..recipes import Recipe
    from ..training.family import read_metrics

    details = Recipe.load(recipe).card if recipe else TrainingDetails.load(supernet)
    model = load_elastic(supernet)
    family = export_family(
        model,
        load_tokenizer(supernet),
        output_dir,
        subnets=size,
        formats=format or ["safetensors"],
        metrics=read_metrics(metrics or supernet, size or model.config.subnets),
        details=details,
        sequence_length=sequence_length,
        overwrite=overwrite,
    )
    show_table(family.table(), conditions(family))
    console.print(f"The family lies in {family.path}.")
