"""`hf-elastic train`: from a checkpoint and labelled text to a trained supernet."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from .display import console, metric_rows, show_phase, show_table
<<<<<<< HEAD
from .options import (
    ConfigName,
    Data,
    LabelColumn,
    OutputDir,
    Overwrite,
    Regression,
    Split,
    Subnets,
    TextColumns,
    check_output_dir,
    choose_sizes,
    read_arguments,
    read_data,
    refuse_file,
)
=======
from .options import OutputDir, Overwrite, check_output_dir
from .training_options import TrainingOptions, takes_training_options

if TYPE_CHECKING:
    from ..training.trainer import ElasticTrainer
>>>>>>> preflight


@takes_training_options
def train(
    options: TrainingOptions,
    output_dir: OutputDir,
<<<<<<< HEAD
    subnet: Subnets = None,
    recipe: Annotated[
        str | None, typer.Option(help="Name or file of a recipe, for sizes and settings that are not given here.")
    ] = None,
    config_name: ConfigName = None,
    split: Split = None,
    validation: Annotated[
        str | None, typer.Option(help="Split or file to validate on. (default: found by its name, else held out)")
    ] = None,
    test: Annotated[
        str | None, typer.Option(help="Split or file to score on. (default: the test split, else the validation one)")
    ] = None,
    text_column: TextColumns = None,
    label_column: LabelColumn = None,
    regression: Regression = False,
    max_length: Annotated[int | None, typer.Option(help="Tokens to which a text is cut. (default: 128)")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows per step. (default: 16)")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Highest learning rate. (default: 5e-05)")] = None,
    finetune_epochs: Annotated[
        float | None, typer.Option(help="Epochs of the full model alone; 0 for a fine-tuned one. (default: 2)")
    ] = None,
    cotrain_epochs: Annotated[float | None, typer.Option(help="Epochs of all sizes together. (default: 2)")] = None,
    rank_examples: Annotated[
        int | None, typer.Option(help="Training rows to rank the units by; 0 for a ranked supernet. (default: 256)")
    ] = None,
    train_rows: Annotated[int | None, typer.Option(help="Training rows to use. (default: all)")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is drawn. (default: 42)")] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--argument", "-a", help="Any other training argument, as NAME=VALUE; repeatable."),
    ] = None,
=======
>>>>>>> preflight
    overwrite: Overwrite = False,
    check: Annotated[
        bool,
        typer.Option(help="Check data, sizes and evaluation first; `hf-elastic check` also trains a little."),
    ] = True,
) -> None:
    """Train all sizes in one run: fine-tune the full model, rank its units, train the sizes together, evaluate."""
    check_output_dir(output_dir, overwrite)
    from ..classification import describe_training, train_text_classifier

<<<<<<< HEAD
    known = Recipe.load(recipe) if recipe else None
    settings = (known.training if known else TrainingSettings()).updated(
        max_length=max_length,
        batch_size=batch_size,
        learning_rate=learning_rate,
        finetune_epochs=finetune_epochs,
        cotrain_epochs=cotrain_epochs,
        rank_examples=rank_examples,
        train_rows=train_rows,
        seed=seed,
        other_arguments=read_arguments(argument),
=======
    inputs = options.read()
    data, settings = inputs.data, inputs.settings
    # On by default, because it takes seconds: a few forward passes, and no step of a training.
    run = train_text_classifier(
        inputs.source, data, settings, inputs.sizes, show_phase, _check_quickly if check else None
>>>>>>> preflight
    )
    run.save(output_dir)
<<<<<<< HEAD
    scored_on = "validation" if labelled.test is None else "test"
    details = known.card if known else TrainingDetails(dataset=Path(data).name)
    described = {"settings": describe_training(settings, run), "run": run.trainer.run_record}
    replace(details, dataset_split=scored_on, **described).save(output_dir)
=======
    scored_on = "validation" if data.test is None else "test"
    details = replace(inputs.details, dataset_split=scored_on, settings=describe_training(settings, run))
    details.save(output_dir)
>>>>>>> preflight
    show_table(metric_rows(run.scores), f"Scores on the {len(run.trainer.eval_dataset)} rows of the {scored_on} data")
    console.print(
        f"The supernet lies in {output_dir}; `hf-elastic export {output_dir} -o family` makes a family of it."
    )


def _check_quickly(trainer: "ElasticTrainer") -> None:
    from ..training.preflight import check_training

    report = check_training(trainer, quick=True)
    report.raise_if_failed()
    console.print(f"Data, sizes and evaluation are in order ({report.seconds:.1f} s).")
