"""Replacing a folder as a whole: its content appears complete, or the former folder stays.

What sets it apart: everything happens in one hidden folder beside the target, held by a lock that dies with its
process. So whatever a killed run left behind is recognised by its place, and the next run puts it right.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from huggingface_hub.utils import WeakFileLock
from transformers.utils import logging

logger = logging.get_logger(__name__)

# A lock that is free is taken at once: the wait only covers the moment in which another run gives it back.
LOCK_TIMEOUT_SECONDS = 1.0
# The lock's folder vanishes with the run that held it, so that a waiting one has to begin anew. The number ends this
# where the cause is another one.
LOCK_ATTEMPTS = 100
# Bytes that a file's name may have on the usual filesystems.
LONGEST_NAME = 255


@contextmanager
def staged(out: Path, check_replaceable: Callable[[Path], None]) -> Iterator[Path]:
    """Gives an empty folder to fill, which takes the place of `out` when the block ends without an exception.

    Args:
        out (`Path`):
            The folder to create or replace. Its parents are created.
        check_replaceable (`Callable[[Path], None]`):
            Called with `out` if that is a non-empty folder, before anything else happens; raises if it must stay.

    Yields:
        `Path`: The folder to fill, on the same filesystem as `out`.

    Raises:
        NotADirectoryError, ValueError, OSError: As [`check_place`] says.
        BlockingIOError: If another process is writing the same folder.
    """
    out = check_place(out)
    workspace = workspace_of(out)
    new, former = workspace / "new", workspace / "former"
    with _locked(workspace / "lock", out):
        try:
            _restore(former, out)
            if _is_occupied(out):
                check_replaceable(out)
            for leftover in (new, former):
                shutil.rmtree(leftover, ignore_errors=True)
            new.mkdir()
            yield new
            if out.exists():
                os.rename(out, former)
            os.rename(new, out)
            shutil.rmtree(former, ignore_errors=True)
        finally:
            _restore(former, out)
            shutil.rmtree(new, ignore_errors=True)
            if not former.exists():
                shutil.rmtree(workspace, ignore_errors=True)


def check_place(out: Path) -> Path:
    """Says before any work whether a finished folder could be moved to a place, and gives its absolute path.

    Raises:
        NotADirectoryError: If it is a file.
        ValueError: If it is the current folder or one around it, which would be moved away from under the process, or
            if a name in it is too long.
        OSError: If it is a mount point, which no folder can be moved onto.
    """
    out = out.resolve()
    for name in workspace_of(out).parts:  # first: the filesystem answers no question about such a path
        check_name(name)
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file: give a folder.")
    if os.path.ismount(out):
        raise OSError(f"{out} is a mount point, and a finished family cannot be moved onto it: give a folder in it.")
    if Path.cwd().is_relative_to(out):
        raise ValueError(f"{out} is the current folder or one around it, and cannot be replaced: give a folder in it.")
    return out


def check_name(name: str) -> None:
    """Says before any work whether a filesystem can hold a folder of this name.

    Raises:
        ValueError: If it is too long.
    """
    excess = len(os.fsencode(name)) - LONGEST_NAME
    if excess > 0:
        raise ValueError(f"{name!r} is {excess} bytes too long for the name of a folder: give a shorter one.")


def workspace_of(out: Path) -> Path:
    """Gives the hidden folder beside `out` in which a run prepares it."""
    return out.parent / f".{out.name}.export"


@contextmanager
def _locked(lock: Path, out: Path) -> Iterator[None]:
    with ExitStack() as stack:
        for attempt in range(1, LOCK_ATTEMPTS + 1):
            try:
                lock.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(WeakFileLock(lock, timeout=LOCK_TIMEOUT_SECONDS))
                break
            except TimeoutError:
                raise BlockingIOError(
                    f"Another process is writing {out} (it holds {lock}): wait for it, or give another folder."
                ) from None
            except (FileNotFoundError, FileExistsError):
                if attempt == LOCK_ATTEMPTS:
                    raise
        yield


def _restore(former: Path, out: Path) -> None:
    """Moves the former folder back where a run ended between moving it away and moving the new one in."""
    if former.exists() and not _is_occupied(out):
        logger.warning(f"Restoring {out}, which an interrupted run had moved away.")
        if out.exists():
            out.rmdir()
        os.rename(former, out)


def _is_occupied(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())
