"""`hf-elastic quickstart`: the whole way on the demo data."""

from pathlib import Path
from typing import Annotated

import typer

from .display import conditions, console, show_phase, show_table


def quickstart(
    fast: Annotated[bool, typer.Option("--fast", help="A quick trial on fewer and shorter articles.")] = False,
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Folder of the family.")] = Path(
        "minilm-bbc-news"
    ),
) -> None:
    """Make a family of four sizes of MiniLM that sort BBC News articles: train, evaluate and export it."""
    from ..quickstart import RECIPE, loading_code, make_demo_family
    from ..recipes import Recipe

    recipe = Recipe.load(RECIPE)
    settings = recipe.settings(fast)
    if fast:
        console.print(
            f"Fast trial: {settings.train_rows} training articles of at most {settings.max_length} tokens. "
            "Without --fast the sizes are better and it takes some minutes longer."
        )
    family = make_demo_family(output_dir, fast, recipe, on_phase=show_phase)
    trial = ", after a fast trial on fewer and shorter articles" if fast else ""
    show_table(family.table(), f"Scores on the test split{trial}. {conditions(family)}")
    console.print(f"The family lies in {family.path}: a folder per size, with a card; family.json describes them all.")
    console.print("Load a size and use it:\n")
    console.print(loading_code(family, "small"), style="cyan", soft_wrap=True)
