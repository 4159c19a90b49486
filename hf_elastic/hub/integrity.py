"""Whether the files of a family are the ones that were exported: sizes, hashes, nothing missing, nothing added."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from .manifest import MANIFEST_NAME, FamilyError, FileRecord, Manifest

REMEDY = "Export or download the family again, or load it with verify=False if the change is yours."
CHUNK_BYTES = 2**20
# What file managers, Python and the Hub's client leave anywhere, and make anew whenever they need it.
CACHES = frozenset({".cache", ".DS_Store", "__pycache__"})


def record_files(folder: Path) -> dict[str, FileRecord]:
    """Records size and SHA-256 of every file in a folder, by its path within the folder.

    Hidden files and `__pycache__` are left out: file managers, git and Python add them without asking.
    """
    return {name: _record(folder / name) for name in _files(folder)}


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compares the files of a family with its manifest.

    Args:
        folder (`Path`):
            The family's folder.
        manifest (`Manifest`):
            What it should hold.

    Raises:
        FamilyError: Names the first file that is missing, truncated, changed or unlisted, or that the manifest places
            outside the folder.
    """
    listed = _listed_files(manifest)
    for name, expected in listed.items():
        path = folder / _inside(folder, name)
        if not path.is_file():
            raise FamilyError(f"{path} is missing. {REMEDY}")
        size = path.stat().st_size
        if size != expected.size:
            raise FamilyError(f"{path} has {size} bytes instead of {expected.size}: cut off or changed. {REMEDY}")
        if file_hash(path) != expected.sha256:
            raise FamilyError(f"{path} has another content than the one exported (SHA-256 differs). {REMEDY}")
    for name in _files(folder):
        if name not in listed and name != MANIFEST_NAME:
            raise FamilyError(
                f"{folder / name} does not belong to the family: its manifest does not list it. {REMEDY}"
            )


def foreign_files(folder: Path, manifest: Manifest) -> list[str]:
    """Gives what would be lost with a family's folder: the files that were added to it or changed in it.

    Hidden ones count, and a hidden folder such as `.git` or a link counts as a whole; only caches do not.
    """
    listed = _listed_files(manifest)
    return [
        name
        for name in _files(folder, hidden=True)
        if name != MANIFEST_NAME and (name not in listed or not _is_unchanged(folder / name, listed[name]))
    ]


def check_names(folder: Path, manifest: Manifest) -> None:
    """Checks that there are members with different names, and that each names a folder directly within the family's.

    Raises:
        FamilyError: Names the member.
    """
    if not manifest.members:
        raise FamilyError(f"{folder / MANIFEST_NAME} lists no members. {REMEDY}")
    names = [member.name for member in (manifest.supernet, *manifest.members)]
    for name in names:
        if names.count(name) > 1 or "/" in name:
            raise FamilyError(
                f"{folder / MANIFEST_NAME} lists a member {name!r}, which is a repeated name or no folder's name. "
                f"{REMEDY}"
            )
        _inside(folder, name)


def _listed_files(manifest: Manifest) -> dict[str, FileRecord]:
    return {
        f"{member.name}/{file}": record
        for member in (manifest.supernet, *manifest.members)
        for file, record in member.files.items()
    }


def _inside(folder: Path, path: str) -> str:
    """Lets through a path from a manifest, which may come from anyone, if it stays within the folder."""
    for part in path.split("/"):
        if part in ("", ".", "..") or any(character in part for character in "\\:\0"):
            raise FamilyError(
                f"{folder / MANIFEST_NAME} lists {path!r}, which may lie outside the folder: do not use this family, "
                "its manifest was changed."
            )
    return path


def _files(folder: Path, hidden: bool = False) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        # As one entry: links, which walk() does not enter, and hidden folders, which are another program's matter.
        closed = [name for name in folders if name.startswith(".") or (Path(path) / name).is_symlink()]
        folders[:] = sorted(set(folders) - set(closed) - CACHES)
        for name in sorted({*files, *closed} - CACHES):
            if hidden or not name.startswith("."):
                yield (Path(path) / name).relative_to(folder).as_posix()


def _is_unchanged(path: Path, expected: FileRecord) -> bool:
    return path.is_file() and path.stat().st_size == expected.size and file_hash(path) == expected.sha256


def _record(path: Path) -> FileRecord:
    return FileRecord(size=path.stat().st_size, sha256=file_hash(path))


def file_hash(path: Path) -> str:
    """Gives the SHA-256 of a file, which is read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
