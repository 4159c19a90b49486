"""Files that are there as a whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replaced_file(path: str | Path) -> Iterator[BinaryIO]:
    """Opens a file beside `path`, which takes its place once all is written.

    A file that was there stays as it is when the writing fails. Missing folders are made.

    Args:
        path: The file to write.

    Example:
        >>> with replaced_file("scores.json") as file:
        ...     file.write(b"{}")
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            yield file
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
