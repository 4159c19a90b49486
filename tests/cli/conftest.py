"""A checkpoint and labelled files for the commands."""

from pathlib import Path

import pytest

from hf_elastic.tasks import bbc_news
from tests.tiny_bert import save_tiny_bert


@pytest.fixture(scope="session")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty news articles of five classes as a csv file."""
    path = tmp_path_factory.mktemp("data") / "news.csv"
    articles = bbc_news.load().limit(60).train
    names = articles.features["label"].names
    articles = articles.map(lambda row: {"topic": names[row["label"]]}).remove_columns("label")
    articles.rename_column("topic", "label").to_csv(path)
    return path


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, data_file: Path) -> Path:
    """A tiny random BERT without a head, with its tokenizer."""
    return save_tiny_bert(tmp_path_factory.mktemp("bert"), data_file.read_text(encoding="utf-8").splitlines())
