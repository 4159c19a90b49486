"""Where labelled data comes from: one file, a folder of files named after their splits, or a data set of the Hub.

The optional library `datasets` does the reading. What is distinctive here: splits are found by the names people use
(`train`, `dev`, `validation_matched`, …), and cells such as `NA` or `null` in a CSV file stay text.
"""

import glob
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datasets

    Source = str | Path | datasets.Dataset | Mapping[str, datasets.Dataset]

# Only an empty cell is a missing value: by default pandas would also turn a label called "None" or "NA" into one.
_CSV_OPTIONS: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
_READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("csv", _CSV_OPTIONS),
    ".tsv": ("csv", {**_CSV_OPTIONS, "sep": "\t"}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".parquet": ("parquet", {}),
}
_VALIDATION_NAMES = ("validation", "valid", "val", "dev", "eval", "validation_matched", "dev_matched")


def require_datasets() -> Any:
    """Imports the optional `datasets` library.

    Raises:
        ImportError: With the command that installs it.
    """
    try:
        import datasets
    except ImportError as error:
        raise ImportError('Reading labelled data needs `datasets`: pip install "hf_elastic[data]"') from error
    return datasets


def load_splits(
    source: "Source",
    config_name: str | None = None,
    train: str | None = None,
    validation: str | Path | None = None,
    test: str | Path | None = None,
) -> "dict[str, datasets.Dataset]":
    """Loads a source and gives its parts their standard names.

    Args:
        source: A csv, tsv, json, jsonl or parquet file, a folder of such files named after their splits, a folder
            written by `save_to_disk`, a Hub id, or an already loaded data set.
        config_name: Configuration of a Hub data set, such as `sst2` of `nyu-mll/glue`.
        train: Name of the split to train on. Default: `train`, or the only split there is.
        validation: Name of a split, or a file. Default: the split with a usual name (`validation`, `dev`, …), if any.
        test: Name of a split, or a file. Default: the split `test`, if any.

    Returns:
        A dict with `train` and, where found, `validation` and `test`.

    Raises:
        FileNotFoundError: If a path does not exist.
        ValueError: If a split is not there, or a file cannot be read.
    """
    found = _load(source, config_name)
    if train is None:
        train = next(iter(found)) if len(found) == 1 else "train"
    if validation is None:
        validation = next((name for name in _VALIDATION_NAMES if name in found and name != train), None)
    if test is None and "test" in found and "test" not in (train, validation):
        test = "test"
    chosen = {"train": train, "validation": validation, "test": test}
    return {role: _pick(found, name, role) for role, name in chosen.items() if name is not None}


def _pick(found: "Mapping[str, datasets.Dataset]", name: str | Path, role: str) -> "datasets.Dataset":
    if str(name) in found:
        return found[str(name)]
    if Path(name).is_file():
        return load_file(name)
    raise ValueError(
        f"No split or file {str(name)!r} for the {role} data; the splits there are: {', '.join(found)}. "
        f"Name one of them for {role}, or give a file."
    )


def _load(source: "Source", config_name: str | None) -> "dict[str, datasets.Dataset]":
    datasets = require_datasets()
    if isinstance(source, datasets.Dataset):
        return {"train": source}
    if isinstance(source, Mapping):
        return dict(source)
    path = Path(source).expanduser()
    if path.is_dir():
        return load_folder(path)
    if path.is_file():
        return {"train": load_file(path)}
    if path.suffix in _READERS or str(source).startswith((".", "/", "~")):
        raise FileNotFoundError(f"There is no file or folder {str(source)!r} to read labelled data from.")
    return dict(datasets.load_dataset(str(source), config_name))


def load_file(path: str | Path) -> "datasets.Dataset":
    """Loads the rows of one csv, tsv, json, jsonl or parquet file.

    Args:
        path: The file.

    Raises:
        ValueError: If it is of another kind, or cannot be read.
    """
    return _load_files(Path(path).suffix, [Path(path)])


def load_folder(folder: Path) -> "dict[str, datasets.Dataset]":
    """Loads the splits of a folder: the files in it by their names, else whatever layout `datasets` understands.

    Args:
        folder: Where they are.

    Raises:
        ValueError: If there is no file that can be read.
    """
    datasets = require_datasets()
    if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
        loaded = datasets.load_from_disk(str(folder))
        return dict(loaded) if isinstance(loaded, Mapping) else {"train": loaded}
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _READERS:
            split = re.sub(r"-\d+-of-\d+$", "", path.stem)  # the Hub's shards: train-00000-of-00002.parquet
            files.setdefault(split, []).append(path)
    if files:
        return {split: _load_files(paths[0].suffix, paths) for split, paths in files.items()}
    if not any(path.suffix in _READERS for path in folder.rglob("*")):
        raise ValueError(
            f"The folder {str(folder)!r} holds none of the files that can be read: {', '.join(_READERS)}."
        )
    return dict(datasets.load_dataset(str(folder)))


def _load_files(suffix: str, paths: list[Path]) -> "datasets.Dataset":
    datasets = require_datasets()
    if suffix not in _READERS:
        raise ValueError(f"Cannot read {str(paths[0])!r}: the formats are {', '.join(_READERS)}.")
    reader, options = _READERS[suffix]
    try:
        files = [glob.escape(str(path)) for path in paths]
        return datasets.load_dataset(reader, data_files=files, split="train", **options)
    except (ValueError, datasets.exceptions.DatasetGenerationError) as error:
        reason = error.__cause__ or error
        raise ValueError(f"Cannot read rows from {str(paths[0])!r} as {reader}, is it empty? {reason}") from error
