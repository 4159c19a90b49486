"""A family read back from disk."""

from dataclasses import dataclass
from pathlib import Path

import transformers
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .heads import HEADS
from .integrity import check_files, check_names
from .manifest import MANIFEST_NAME, SUPERNET_NAME, FamilyError, Manifest, Member, read_manifest
from .staging import workspace_of
from .table import family_table


@dataclass(frozen=True)
class Family:
    """A family on disk. [`load_family`] and [`export_family`] give it.

    Args:
        path (`Path`): Its folder, as an absolute path.
        manifest (`Manifest`): Everything that its `family.json` says.

    Example:
        >>> family = load_family("out")
        >>> family.names
        ['large', 'base', 'small', 'tiny']
        >>> model, tokenizer = family.load("small"), family.tokenizer()
    """

    path: Path
    manifest: Manifest

    def __repr__(self) -> str:
        return f"Family({str(self.path)!r}, sizes={self.names})"

    @property
    def members(self) -> dict[str, Member]:
        """The sizes by name, largest first."""
        return {member.name: member for member in self.manifest.members}

    @property
    def supernet(self) -> Member:
        """The elastic model that all sizes come from."""
        return self.manifest.supernet

    @property
    def names(self) -> list[str]:
        """Names of the sizes, largest first."""
        return list(self.members)

    def load(self, name: str) -> PreTrainedModel:
        """Loads a member, or the supernet, with the installed classes.

        Args:
            name (`str`):
                Name of a size, or `"supernet"`.

        Returns:
            `PreTrainedModel`: In evaluation mode.

        Raises:
            ValueError: If the family has no such member; lists those it has.
        """
        if name not in (*self.names, SUPERNET_NAME):
            raise ValueError(f"{self.path} has no member {name!r}: it has {[*self.names, SUPERNET_NAME]}.")
        auto_class = getattr(transformers, HEADS[self.manifest.architecture].auto_class)
        return auto_class.from_pretrained(self.path / name, trust_remote_code=False, local_files_only=True)

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Loads the tokenizer that all members share."""
        folder = self.path / SUPERNET_NAME
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)

    def table(self) -> list[dict[str, str]]:
        """Gives one row per size for display, keyed by column titles."""
        return family_table(self.manifest)


def load_family(path: str | Path, verify: bool = True) -> Family:
    """Reads a family that [`export_family`] wrote.

    Args:
        path (`str` or `Path`):
            Its folder.
        verify (`bool`, defaults to `True`):
            Whether to compare the size and the SHA-256 of every file with the manifest. It reads all weights once.

    Returns:
        `Family`: Its members load on demand.

    Raises:
        FamilyError: If the manifest is missing, damaged or of an unknown version, or, with `verify`, a file is
            missing, changed or unlisted. Names the file and the remedy.
    """
    path = Path(path).resolve()  # members load later, and then the current folder may be another one
    if not path.is_dir():
        left_behind = workspace_of(path)
        hint = f"an export was interrupted: export to {path} again, which begins by restoring the former family."
        raise FamilyError(
            f"{path} is no folder: " + (hint if left_behind.exists() else "give one that `export_family` wrote.")
        )
    manifest = read_manifest(path)
    if manifest.architecture not in HEADS:
        raise FamilyError(
            f"{path / MANIFEST_NAME} has the architecture {manifest.architecture!r}, and known are {list(HEADS)}: "
            "upgrade hf_elastic, or export the family again."
        )
    check_names(path, manifest)
    if verify:
        check_files(path, manifest)
    return Family(path, manifest)
