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
        NotADirectoryError: If `out` is a file.
        BlockingIOError: If another process is writing the same folder.
        OSError: If `out` is a mount point, which no folder can be moved onto.
    """
    out = out.resolve()
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file: give a folder.")
    if os.path.ismount(out):
        raise OSError(f"{out} is a mount point, and a finished family cannot be moved onto it: give a folder in it.")
    workspace = workspace_of(out)
    new, former = workspace / "new", workspace / "former"
    workspace.mkdir(parents=True, exist_ok=True)
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


def workspace_of(out: Path) -> Path:
    """Gives the hidden folder beside `out` in which a run prepares it."""
    return out.with_name(f".{out.name}.export")


@contextmanager
def _locked(lock: Path, out: Path) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(WeakFileLock(lock, timeout=LOCK_TIMEOUT_SECONDS))
        except TimeoutError:
            raise BlockingIOError(
                f"Another process is writing {out} (it holds {lock}): wait for it, or give another folder."
            ) from None
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
