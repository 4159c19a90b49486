"""Whether the files of a family are the ones that were exported: sizes, hashes, nothing missing, nothing added."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from .manifest import MANIFEST_NAME, FamilyError, FileRecord, Manifest

REMEDY = "Export or download the family again, or load it with verify=False if the change is yours."
CHUNK_BYTES = 2**20


def record_files(folder: Path) -> dict[str, FileRecord]:
    """Records size and SHA-256 of every file in a folder, by its path within the folder.

    Hidden files and `__pycache__` are left out: file managers, git and Python add them without asking.
    """
    return {name: _record(folder / name) for name in _visible_files(folder)}


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
    for name, expected in _listed_files(manifest).items():
        path = folder / _inside(folder, name)
        if not path.is_file():
            raise FamilyError(f"{path} is missing. {REMEDY}")
        size = path.stat().st_size
        if size != expected.size:
            raise FamilyError(f"{path} has {size} bytes instead of {expected.size}: cut off or changed. {REMEDY}")
        if _sha256(path) != expected.sha256:
            raise FamilyError(f"{path} has another content than the one exported (SHA-256 differs). {REMEDY}")
    for name in unlisted_files(folder, manifest):
        raise FamilyError(f"{folder / name} does not belong to the family: the manifest does not list it. {REMEDY}")


def unlisted_files(folder: Path, manifest: Manifest) -> list[str]:
    """Gives the files in a family's folder that its manifest does not list, hidden ones and `__pycache__` aside."""
    listed = _listed_files(manifest)
    return [name for name in _visible_files(folder) if name not in listed and name != MANIFEST_NAME]


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


def _visible_files(folder: Path) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(path) / name).is_symlink()]  # walk() does not enter them
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted([*files, *links]):
            if not name.startswith("."):
                yield (Path(path) / name).relative_to(folder).as_posix()


def _record(path: Path) -> FileRecord:
    return FileRecord(size=path.stat().st_size, sha256=_sha256(path))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
