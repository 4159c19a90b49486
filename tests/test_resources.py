"""hf_elastic.resources in the three layouts it can meet, each laid out on disk around a copy of the module."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from hf_elastic import resources


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An otherwise empty package folder."""
    folder = tmp_path / "site" / "hf_elastic"
    folder.mkdir(parents=True)
    return folder


def load_copy(package: Path) -> ModuleType:
    """Imports a copy of the module that lies in `package`."""
    path = shutil.copy(resources.__file__, package / "resources.py")
    spec = importlib.util.spec_from_file_location("resources_copy", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["model_cards", "hub_configs"])
def test_folder_inside_the_package_wins(package, name):
    (package / name).mkdir()
    (package.parent / name).mkdir()
    assert getattr(load_copy(package), f"{name}_folder")() == package / name


@pytest.mark.parametrize("name", ["model_cards", "hub_configs"])
def test_folder_beside_the_package(package, name):
    (package.parent / name).mkdir()
    assert getattr(load_copy(package), f"{name}_folder")() == package.parent / name


@pytest.mark.parametrize("name", ["model_cards", "hub_configs"])
def test_missing_folder_is_named_with_a_remedy(package, name):
    with pytest.raises(FileNotFoundError, match=rf"'{name}'.*Reinstall hf_elastic.*git checkout -- {name}"):
        getattr(load_copy(package), f"{name}_folder")()
