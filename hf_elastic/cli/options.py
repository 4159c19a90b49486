"""Options that several commands share, and how their values are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from ..modeling.subnet_elastic import MULTIPLIERS

if TYPE_CHECKING:
    from ..tasks.text_classification import TextClassificationData


def refuse_file(checkpoint: str) -> str:
    """Gives a checkpoint's folder or Hub id as it is.

    Raises:
        NotADirectoryError: If it is a file, which transformers would take for weights.
    """
    if Path(checkpoint).is_file():
        raise NotADirectoryError(f"{checkpoint} is a file: give the folder it lies in, {Path(checkpoint).parent}.")
    return checkpoint


Supernet = Annotated[str, typer.Argument(help="Folder or Hub id of a supernet.", callback=refuse_file)]
Data = Annotated[
    str,
    typer.Argument(
        help="A csv, tsv, json, jsonl or parquet file, a folder of such files named after splits, or a Hub id."
    ),
]
OutputDir = Annotated[Path, typer.Option("--output-dir", "-o", help="Folder to write to.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Write to the folder even if it is not empty.")]
Subnets = Annotated[
    list[str] | None,
    typer.Option(
        "--subnet",
        metavar="NAME=KEY:VALUE,…",
        help=f"A size by multipliers ({', '.join(MULTIPLIERS)}), e.g. small=width:0.5,depth:0.67. Repeat it.",
    ),
]
ConfigName = Annotated[str | None, typer.Option(help="Configuration of a Hub data set.")]
Split = Annotated[str | None, typer.Option(help="Split to train on. (default: train, or the only one)")]
TextColumns = Annotated[
    list[str] | None, typer.Option("--text-column", help="Column of text; repeat it for a pair. (default: found)")
]
LabelColumn = Annotated[str | None, typer.Option(help="Column of labels. (default: found by its name)")]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--argument",
        "-a",
        help="Any other training argument, as NAME=VALUE, in YAML: those of transformers.TrainingArguments, and of "
        "the classes that help(hf_elastic.ElasticTrainingArguments) names. Repeat it.",
    ),
]
Regression = Annotated[bool, typer.Option("--regression", help="Treat whole-number labels as a quantity.")]


def parse_subnet(definition: str) -> tuple[str, dict[str, float]]:
    """Reads `name=key:value,key:value`; `name=` alone is the full model.

    Returns:
        The name and the multipliers.

    Raises:
        typer.BadParameter: If the text has another form.
    """
    name, equals, rest = definition.partition("=")
    example = "write it as small=width:0.5,depth:0.67"
    if not name or not equals:
        raise typer.BadParameter(f"--subnet {definition!r} lacks a name and '=': {example}.")
    multipliers: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition(":")
        if key not in MULTIPLIERS:
            raise typer.BadParameter(
                f"--subnet {definition!r}: {key!r} is none of {', '.join(MULTIPLIERS)}; {example}."
            )
        try:
            multipliers[key] = float(value)
        except ValueError:
            raise typer.BadParameter(f"--subnet {definition!r}: {value!r} is not a number; {example}.") from None
        if not 0 < multipliers[key] <= 1:
            raise typer.BadParameter(f"--subnet {definition!r}: {value} does not lie in (0, 1]; {example}.")
    return name, multipliers


def read_arguments(definitions: Sequence[str] | None) -> dict[str, Any]:
    """Reads training arguments, each `name=value` with a value as in YAML.

    Returns:
        The values by name.

    Raises:
        typer.BadParameter: If a text has another form.
    """
    values: dict[str, Any] = {}
    for name, value in read_named("--argument", definitions, "temperature=2.0").items():
        try:
            values[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            values[name] = value
    return values


def read_named(option: str, definitions: Sequence[str] | None, example: str) -> dict[str, str]:
    """Reads values of an option that is given as `name=value`, once or several times.

    Args:
        option: What the option is called.
        definitions: What was given.
        example: How it may look.

    Returns:
        The texts by name.

    Raises:
        typer.BadParameter: If a text has another form.
    """
    values = {}
    for definition in definitions or ():
        name, equals, value = definition.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{option} {definition!r} lacks a name and '=': write it as {example}.")
        if name.strip() in values:
            raise typer.BadParameter(f"{option} gives {name.strip()} twice: leave one out.")
        values[name.strip()] = value
    return values


def choose_sizes(
    definitions: Sequence[str] | None, of_recipe: dict[str, dict[str, float]] | None, source: str
) -> dict[str, dict[str, float]] | None:
    """Chooses sizes: those that `--subnet` defines, else the recipe's, else those of the supernet, else the default.

    Returns:
        Multipliers by name; None for what the supernet names itself.
    """
    from ..checkpoints import named_subnets
    from ..recipes import DEFAULT_SUBNETS

    if definitions:
        return dict(map(parse_subnet, definitions))
    return of_recipe or (None if named_subnets(source) else DEFAULT_SUBNETS)


def check_output_dir(folder: Path, overwrite: bool) -> None:
    """Refuses, before any work, to mix what is written with other files.

    Raises:
        FileExistsError: If the folder is not empty, unless `overwrite`; or if it is a file.
    """
    if folder.is_file():
        raise FileExistsError(f"{folder} is a file: give a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise FileExistsError(f"{folder} is not empty: give another folder, or --overwrite.")


def read_data(source: str, checkpoint: str, regression: bool, **options: Any) -> "TextClassificationData":
    """Reads labelled text with labels that fit a checkpoint's head, where it has one.

    Args:
        source: Where the data are.
        checkpoint: Folder or Hub id of the checkpoint.
        regression: Whether whole-number labels are a quantity.
        options: Keyword arguments of [`tasks.text_classification.read`].
    """
    from ..checkpoints import expected_labels
    from ..tasks.labels import REGRESSION
    from ..tasks.text_classification import read

    expected = {**expected_labels(checkpoint), **({"problem_type": REGRESSION} if regression else {})}
    return read(source, **{**options, **expected})
