"""`hf-elastic train`: from a checkpoint and labelled text to a trained supernet."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from .display import console, metric_rows, show_phase, show_table
from .options import OutputDir, Overwrite, check_output_dir
from .training_options import TrainingOptions, takes_training_options

if TYPE_CHECKING:
    from ..training.trainer import ElasticTrainer


@takes_training_options
def train(
    options: TrainingOptions,
    output_dir: OutputDir,
    overwrite: Overwrite = False,
    check: Annotated[
        bool,
        typer.Option(help="Check data, sizes and evaluation first; `hf-elastic check` also trains a little."),
    ] = True,
) -> None:
    """Train all sizes in one run: fine-tune the full model, rank its units, train the sizes together, evaluate.

    The output folder gets the supernet, its scores, and what the training logged (training_log.json). Checkpoints
    that other arguments ask for serve the training (best model, rollback) and are gone after it.
    """
    check_output_dir(output_dir, overwrite)
    from ..classification import describe_training, train_text_classifier

    inputs = options.read()
    data, settings = inputs.data, inputs.settings
    # On by default, because it takes seconds: a few forward passes, and no step of a training.
    run = train_text_classifier(
        inputs.source, data, settings, inputs.sizes, show_phase, _check_quickly if check else None
    )
    run.save(output_dir)
    scored_on = "validation" if data.test is None else "test"
    described = {"settings": describe_training(settings, run), "run": run.record}
    replace(inputs.details, dataset_split=scored_on, **described).save(output_dir)
    show_table(metric_rows(run.scores), f"Scores on the {len(run.scored_dataset)} rows of the {scored_on} data")
    if run.outcome.ending:
        console.print(run.outcome.ending)
    console.print(
        f"The supernet lies in {output_dir}, beside it what the training logged (training_log.json). "
        f"`hf-elastic export {output_dir} -o family` makes a family of it."
    )


def _check_quickly(trainer: "ElasticTrainer") -> None:
    from ..training.preflight import check_training

    report = check_training(trainer, quick=True)
    report.raise_if_failed()
    console.print(f"Data, sizes and evaluation are in order ({report.seconds:.1f} s).")
