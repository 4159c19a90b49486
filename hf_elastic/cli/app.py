"""The program `hf-elastic`: its commands, and how it reports errors."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from .. import __version__
from .benchmarks import glue, superglue
from .check import check
from .convert import convert
from .ensemble import ensemble
from .export import export
from .extract import extract
from .info import info
from .quickstart import quickstart
from .rank import rank
from .search import search
from .train import train

# What users cause is said in their words; anything else is an error of the program and named by its type.
_EXPECTED = (ImportError, OSError, RuntimeError, TypeError, ValueError)

app = typer.Typer(
    name="hf-elastic",
    help="One training run, a whole family of encoder sizes.",
    epilog="Give --debug, before or after the command, to see where an error comes from.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (quickstart, convert, rank, check, train, search, glue, superglue, ensemble, extract, export, info):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hf_elastic {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Holds what every command takes; `main` acts on it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program: an error is one line on stderr and exit status 1, a wrong usage exit status 2.

    Args:
        arguments: What follows the program's name. `sys.argv` by default.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    if debug:
        arguments = ["--debug", *(argument for argument in arguments if argument != "--debug")]
    try:
        app(arguments)
    except Exception as error:
        if debug:
            raise
        message = " ".join(str(error).split())
        if not message or not isinstance(error, _EXPECTED):
            message = f"{type(error).__name__}: {message} (--debug shows the traceback)"
        print(f"error: {message}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
