"""The whole way on the demo data: MiniLM, fine-tuned on BBC News, becomes a family of four sizes on disk."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .classification import describe_training, train_text_classifier
from .hub.details import TrainingDetails
from .hub.exporting import check_destination, export_family
from .hub.family import Family
from .recipes import Recipe, TrainingSettings
from .tasks import bbc_news
from .tasks.text_classification import TextClassificationData
from .training.family import FamilyRun

RECIPE = "minilm-bbc-news"


def make_demo_family(
    output_dir: str | Path,
    fast: bool = False,
    recipe: Recipe | None = None,
    source: str | Path | None = None,
    data: TextClassificationData | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> Family:
    """Trains and exports the demo family, or another one in the same way.

    Args:
        output_dir (`str` or `Path`):
            The folder to write: a new one, an empty one, or that of a former family, which is replaced.
        fast (`bool`, defaults to `False`):
            Whether to apply what the recipe changes for a fast trial.
        recipe ([`Recipe`], *optional*):
            `minilm-bbc-news` by default.
        source (`str` or `Path`, *optional*):
            Where the source of the recipe lies. By default the MiniLM that the extra `demo` installs.
        data ([`TextClassificationData`], *optional*):
            BBC News by default. The sizes are scored on its test split, which nothing before looks at.
        on_phase (`Callable[[str], None]`, *optional*):
            As [`train_text_classifier`] takes it; after its phases comes `"export"`.

    Returns:
        [`Family`]: The family on disk.

    Raises:
        ImportError: If a part of the extra `demo` is missing; says how to install it.
        FileExistsError: If the folder holds something else than a family.
    """
    check_destination(output_dir)
    recipe = recipe or Recipe.load(RECIPE)
    settings = recipe.settings(fast)
    run = train_text_classifier(
        bbc_news.minilm_checkpoint() if source is None else source,
        bbc_news.load() if data is None else data,
        settings,
        recipe.subnets,
        on_phase,
    )
    if on_phase is not None:
        on_phase("export")
    return export_family(
        run.model,
        run.trainer.processing_class,
        output_dir,
        formats=recipe.formats,
        metrics=run.scores,
        details=_details(recipe, settings, run),
        sequence_length=settings.max_length,
    )


def loading_code(family: Family, size: str, text: str = "The striker scored twice in the final minutes.") -> str:
    """Gives three lines of Python that load a size of a family of text classifiers and use it."""
    return (
        "import hf_elastic  # makes the sizes known to transformers\n"
        "from transformers import pipeline\n"
        f'print(pipeline("text-classification", "{(family.path / size).as_posix()}")("{text}"))'
    )


def _details(recipe: Recipe, settings: TrainingSettings, run: FamilyRun) -> TrainingDetails:
    """What the cards say: the recipe's text, and the settings of this run."""
    rows = len(run.trainer.train_dataset)
    described = recipe.card.training_data
    if described and settings.train_rows is not None:
        described = f"A fast trial on only {rows} training rows of these: {described}"
    return replace(
        recipe.card,
        name=recipe.card.name or recipe.name,
        base_model=recipe.card.base_model or recipe.source,
        training_data=described,
        settings=describe_training(settings, run),
        run=run.record,
    )
