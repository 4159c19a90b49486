"""Real data, a tiny model with a real tokenizer, and a cache of its own for the task tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def cached_data_of_fixtures(tmp_path_factory):
    """Keeps what `datasets` writes out of the user's cache."""
    import datasets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets-cache"))
        yield


@pytest.fixture(autouse=True)
def cached_data(tmp_path, monkeypatch):
    """Gives each test a cache of its own."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")


@pytest.fixture(scope="session")
def source(tmp_path_factory, minilm) -> Path:
    """Folder of a random BERT without a head."""
    from .tiny_runs import save_model

    return save_model(tmp_path_factory.mktemp("bert"), minilm)


@pytest.fixture(scope="session")
def glue() -> Path:
    """Folder of GLUE tasks as parquet files: `$HF_ELASTIC_DATA/glue`, or `shared/data/glue` beside the checkout."""
    checkout = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("HF_ELASTIC_DATA", checkout.parent / "shared" / "data")) / "glue"
    if not folder.is_dir():
        pytest.skip(f"no GLUE rows at {folder}: set HF_ELASTIC_DATA to a folder that holds glue/<task>/train.parquet")
    return folder


@pytest.fixture
def csv_file(tmp_path):
    """Writes rows of text as a CSV file and gives its path."""

    def write(*lines: str, name: str = "data.csv") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write
