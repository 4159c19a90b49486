"""What must hold for every tracked file of the project."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Where checkouts and environments lie on a particular machine, put together here so that this file has no hit itself.
# The look-behind lets pass relative paths and web addresses that merely contain such a folder name.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:" + "|".join(("work", "root", "home", "Users", "opt/venv")) + r")[/-]")


def tracked_files() -> list[Path]:
    """Lists the files under version control that exist in the work tree; skips the test outside a git checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so there are no tracked files")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def test_machine_path_pattern_tells_machine_paths_from_others():
    assert MACHINE_PATH.search("open('" + "/root" + "/model')")
    assert MACHINE_PATH.search(". " + "/opt" + "/venv-dev/bin/activate")
    assert not MACHINE_PATH.search("examples" + "/work" + "/out, https://example.org" + "/root" + "/page")


def test_tracked_text_has_no_path_of_a_machine():
    hits = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or other binary
        name = path.relative_to(ROOT)
        hits += [f"{name}: {line.strip()}" for line in text.splitlines() if MACHINE_PATH.search(line)]
    assert hits == []
