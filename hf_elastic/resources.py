"""The text folders that ship with the package: model card templates and the recipes of published families.

They are top-level folders of the project, where people read and edit them, and lie inside the package once it is
installed from a wheel. Everything that reads them asks here, so that both layouts work alike.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def model_cards_folder() -> Path:
    """Gives the folder of model card templates.

    Returns:
        The existing folder, inside the package or at the top of the source checkout.

    Raises:
        FileNotFoundError: Neither place has it.
    """
    return _shipped_folder("model_cards")


def hub_configs_folder() -> Path:
    """Gives the folder of YAML recipes, one per published family.

    Returns:
        The existing folder, inside the package or at the top of the source checkout.

    Raises:
        FileNotFoundError: Neither place has it.
    """
    return _shipped_folder("hub_configs")


def _shipped_folder(name: str) -> Path:
    """Finds `name` inside the package (wheel) or beside it (source checkout, editable install)."""
    # The package comes first: in an installation, what lies beside it belongs to other packages.
    candidates = (_PACKAGE / name, _PACKAGE.parent / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        f"The folder {name!r} that ships with hf_elastic is neither at {candidates[0]} nor at {candidates[1]}. "
        "Reinstall hf_elastic; in a source checkout, restore the folder with "
        f"`git checkout -- {name}`."
    )
