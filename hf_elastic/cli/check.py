"""`hf-elastic check`: whether a training would work, before it costs hours."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from .display import console, show_phase, show_table
from .options import Overwrite, check_output_dir
from .training_options import TrainingOptions, takes_training_options


@takes_training_options
def check(
    options: TrainingOptions,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", help="Folder that the training is to write to.")
    ] = None,
    overwrite: Overwrite = False,
    steps: Annotated[int, typer.Option(min=2, help="Steps in which the loss has to fall.")] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="Only what takes seconds: no training steps.")] = False,
) -> None:
    """Check what `train` would do with the same options: data, sizes, loss, checkpoints, memory. Nothing is kept."""
    if output_dir is not None:
        check_output_dir(output_dir, overwrite)
    from ..classification import prepare_text_classifier
    from ..training.finetuning import finetuning_arguments
    from ..training.preflight import check_training
    from ..training.trainer import ElasticTrainer

    inputs = options.read()
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare_text_classifier(
            inputs.source, inputs.data, inputs.settings, folder, inputs.sizes, show_phase
        )
        if inputs.settings.finetune_epochs:
            finetuning_arguments(prepared.arguments["args"], inputs.settings.finetune_epochs)
        show_phase("check")
        report = check_training(ElasticTrainer(**prepared.arguments), steps, quick)
    show_table(report.table(), texts=("verdict", "seen"))
    if inputs.settings.finetune_epochs and not quick:
        console.print("The fine-tuning of the full model and the ranking before the common training come on top.")
    for fault in report.failures:
        console.print(f"[bold]{fault.name}[/]: {fault.remedy}")
    if not report.passed:
        raise typer.Exit(1)
