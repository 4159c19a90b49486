"""What a training is made of on the command line: the options that `train` and `check` share."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .display import console
from .options import (
    Arguments,
    ConfigName,
    Data,
    LabelColumn,
    Regression,
    Split,
    Subnets,
    TextColumns,
    choose_sizes,
    read_arguments,
    read_data,
    refuse_file,
)

if TYPE_CHECKING:
    from ..hub.details import TrainingDetails
    from ..recipes import TrainingSettings
    from ..tasks.text_classification import TextClassificationData


class TrainingInputs(NamedTuple):
    """What the options mean: data that are read, settings, sizes by name, and what cards say of the training."""

    source: str
    data: "TextClassificationData"
    settings: "TrainingSettings"
    sizes: dict[str, dict[str, float]] | None
    details: "TrainingDetails"


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options, as typer reads them."""

    source: Annotated[
        str,
        typer.Argument(help="Folder or Hub id of a supernet, or of a BERT-type checkpoint.", callback=refuse_file),
    ]
    data: Data
    subnet: Subnets = None
    recipe: Annotated[
        str | None, typer.Option(help="Name or file of a recipe, for sizes and settings that are not given here.")
    ] = None
    config_name: ConfigName = None
    split: Split = None
    validation: Annotated[
        str | None, typer.Option(help="Split or file to validate on. (default: found by its name, else held out)")
    ] = None
    test: Annotated[
        str | None, typer.Option(help="Split or file to score on. (default: the test split, else the validation one)")
    ] = None
    text_column: TextColumns = None
    label_column: LabelColumn = None
    regression: Regression = False
    max_length: Annotated[int | None, typer.Option(help="Tokens to which a text is cut. (default: 128)")] = None
    batch_size: Annotated[int | None, typer.Option(help="Rows per step. (default: 16)")] = None
    learning_rate: Annotated[float | None, typer.Option(help="Highest learning rate. (default: 5e-05)")] = None
    finetune_epochs: Annotated[
        float | None, typer.Option(help="Epochs of the full model alone; 0 for a fine-tuned one. (default: 2)")
    ] = None
    cotrain_epochs: Annotated[float | None, typer.Option(help="Epochs of all sizes together. (default: 2)")] = None
    rank_examples: Annotated[
        int | None, typer.Option(help="Training rows to rank the units by; 0 for a ranked supernet. (default: 256)")
    ] = None
    train_rows: Annotated[int | None, typer.Option(help="Training rows to use. (default: all)")] = None
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is drawn. (default: 42)")] = None
    argument: Arguments = None

    def read(self) -> TrainingInputs:
        """Reads recipe and data, and tells the sizes."""
        from ..checkpoints import named_subnets
        from ..hub.details import TrainingDetails
        from ..recipes import Recipe, TrainingSettings

        known = Recipe.load(self.recipe) if self.recipe else None
        settings = (known.training if known else TrainingSettings()).updated(
            max_length=self.max_length,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            finetune_epochs=self.finetune_epochs,
            cotrain_epochs=self.cotrain_epochs,
            rank_examples=self.rank_examples,
            train_rows=self.train_rows,
            seed=self.seed,
        )
        settings = settings.with_arguments(without_options(read_arguments(self.argument)))
        settings.arguments("unused")  # says what does not go together before the data are read
        sizes = choose_sizes(self.subnet, known.subnets if known else None, self.source)
        console.print(f"Sizes: {', '.join(sizes or named_subnets(self.source))}.")
        labelled = read_data(
            self.data,
            self.source,
            self.regression,
            split=self.split,
            config_name=self.config_name,
            validation=self.validation,
            test=self.test,
            text_columns=self.text_column,
            label_column=self.label_column,
            seed=settings.seed,
        )
        details = known.card if known else TrainingDetails(dataset=Path(self.data).name)
        return TrainingInputs(self.source, labelled, settings, sizes, details)


def without_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """Gives training arguments as they are.

    Raises:
        typer.BadParameter: If one of them has an option of its own.
    """
    from ..recipes import RENAMED_ARGUMENTS, TrainingSettings

    settings = {setting.name for setting in fields(TrainingSettings)}
    options = {option.name for option in fields(TrainingOptions)} & settings | {"output_dir"}
    for name in arguments:
        option = RENAMED_ARGUMENTS.get(name, name)
        if option in options:
            raise typer.BadParameter(f"--argument {name}: give it as --{option.replace('_', '-')}.")
    return arguments


def takes_training_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of a training, before its own ones.

    Args:
        command: Takes them as one [`TrainingOptions`], and its own options as further arguments.
    """
    shared = list(inspect.signature(TrainingOptions).parameters.values())
    own = list(inspect.signature(command).parameters.values())[1:]

    def run(**values: Any) -> None:
        options = TrainingOptions(**{parameter.name: values.pop(parameter.name) for parameter in shared})
        command(options, **values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in [*shared, *own]]
    run.__signature__ = inspect.Signature(keywords)
    return run
