import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hf_elastic.hub.staging import staged, workspace_of

REPOSITORY = Path(__file__).parents[2]


def anything(folder: Path) -> None:
    """Lets everything be replaced."""


def content(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def former(tmp_path: Path) -> Path:
    out = tmp_path / "out"
    (out / "sub").mkdir(parents=True)
    (out / "sub" / "file").write_text("former")
    return out


def fill(folder: Path) -> None:
    (folder / "file").write_text("new")


def test_a_new_folder_appears_with_its_parents_and_nothing_else(tmp_path):
    out = tmp_path / "a" / "b"
    with staged(out, anything) as folder:
        fill(folder)
        assert not out.exists()
    assert content(out) == {"file": "new"}
    assert os.listdir(out.parent) == ["b"]


def test_an_empty_folder_is_replaced_without_asking(tmp_path):
    def refuse(folder: Path) -> None:
        raise AssertionError("asked about an empty folder")

    with staged(tmp_path / "out", refuse) as folder:
        fill(folder)
    (tmp_path / "empty").mkdir()
    with staged(tmp_path / "empty", refuse) as folder:
        fill(folder)
    assert content(tmp_path / "empty") == {"file": "new"}


def test_the_former_folder_is_replaced_as_a_whole(former):
    with staged(former, anything) as folder:
        fill(folder)
        assert content(former) == {"sub/file": "former"}
    assert content(former) == {"file": "new"}
    assert os.listdir(former.parent) == ["out"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, TimeoutError])
def test_an_exception_keeps_the_former_folder(former, error):
    with pytest.raises(error), staged(former, anything) as folder:
        fill(folder)
        raise error
    assert content(former) == {"sub/file": "former"}
    assert os.listdir(former.parent) == ["out"]


def test_an_exception_leaves_nothing_where_nothing_was(tmp_path):
    with pytest.raises(RuntimeError), staged(tmp_path / "out", anything) as folder:
        fill(folder)
        raise RuntimeError
    assert os.listdir(tmp_path) == []


def test_a_failing_move_restores_the_former_folder(former):
    with pytest.raises(FileNotFoundError), staged(former, anything) as folder:
        folder.rmdir()  # so that the second of the two moves fails
    assert content(former) == {"sub/file": "former"}
    assert os.listdir(former.parent) == ["out"]


def test_a_refusal_comes_before_the_block_and_changes_nothing(former):
    def refuse(folder: Path) -> None:
        raise FileExistsError(f"{folder} must stay")

    with pytest.raises(FileExistsError, match="must stay"), staged(former, refuse):
        raise AssertionError("the block ran")
    assert content(former) == {"sub/file": "former"}
    assert os.listdir(former.parent) == ["out"]


def test_a_file_in_the_place_is_refused(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(NotADirectoryError, match="is a file: give a folder"), staged(tmp_path / "out", anything):
        raise AssertionError("the block ran")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_mount_point_is_refused():
    with pytest.raises(OSError, match="is a mount point"), staged(Path("/"), anything):
        raise AssertionError("the block ran")


@pytest.mark.parametrize("place", [".", "..", "../out"])
def test_the_current_folder_and_those_around_it_are_refused(place, former, monkeypatch):
    monkeypatch.chdir(former)
    message = "is the current folder or one around it, .*: give a folder in it"
    with pytest.raises(ValueError, match=message), staged(Path(place), anything):
        raise AssertionError("the block ran")
    assert content(Path.cwd()) == {"sub/file": "former"}
    with staged(Path("in"), anything) as folder:
        fill(folder)
    assert content(former) == {"sub/file": "former", "in/file": "new"}


@pytest.mark.parametrize("place", ["x" * 256, "x" * 250, "x" + "ü" * 130, "x" * 256 + "/out"])
def test_a_name_that_is_too_long_is_refused(place, tmp_path):
    message = "x.* is [0-9]+ bytes too long for the name of a folder: give a shorter one"
    with pytest.raises(ValueError, match=message), staged(tmp_path / place, anything):
        raise AssertionError("the block ran")
    assert os.listdir(tmp_path) == []


def test_a_link_stays_and_its_target_is_replaced(former, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(former)
    with staged(link, anything) as folder:
        fill(folder)
    assert link.is_symlink()
    assert content(former) == {"file": "new"}


def run_until_killed(out: Path, block: str) -> None:
    """Runs `block` in a process that is to kill itself within `staged`."""
    script = f"""
import os, signal
from pathlib import Path
from hf_elastic.hub.staging import staged

def die():
    os.kill(os.getpid(), signal.SIGKILL)

with staged(Path({str(out)!r}), lambda folder: None) as folder:
    (folder / "file").write_text("new")
{block}
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr


KILL_WHILE_FILLING = "    die()"
# Kills before the n-th move from then on: the first takes the former folder away, the second brings the new one.
KILL_BETWEEN_THE_MOVES = """
    rename, moves = os.rename, iter([lambda *paths: rename(*paths), lambda *paths: die()])
    os.rename = lambda *paths: next(moves)(*paths)
"""
KILL_BEFORE_CLEANING = """
    import shutil
    shutil.rmtree = lambda *arguments, **options: die()
"""


@pytest.mark.parametrize(
    ("block", "kept"),
    [
        (KILL_WHILE_FILLING, {"sub/file": "former"}),
        (KILL_BETWEEN_THE_MOVES, None),
        (KILL_BEFORE_CLEANING, {"file": "new"}),
    ],
)
def test_after_a_kill_the_next_run_works(former, block, kept):
    run_until_killed(former, block)
    assert workspace_of(former).exists()
    assert (content(former) if former.exists() else None) == kept
    with staged(former, anything) as folder:
        assert content(folder) == {}
        # What a kill had moved away is back before anything else happens.
        assert content(former) == (kept or {"sub/file": "former"})
        (folder / "file").write_text("newer")
    assert content(former) == {"file": "newer"}
    assert os.listdir(former.parent) == ["out"]


def test_after_a_kill_a_failing_run_still_restores_the_former_folder(former):
    run_until_killed(former, KILL_BETWEEN_THE_MOVES)
    with pytest.raises(RuntimeError), staged(former, anything):
        raise RuntimeError
    assert content(former) == {"sub/file": "former"}
    assert os.listdir(former.parent) == ["out"]


def test_after_a_kill_what_someone_put_in_the_place_does_not_cost_the_former_folder(former):
    run_until_killed(former, KILL_BETWEEN_THE_MOVES)
    former.mkdir()
    (former / "notes").write_text("mine")

    def refuse(folder: Path) -> None:
        raise FileExistsError("must stay")

    with pytest.raises(FileExistsError, match="must stay"), staged(former, refuse):
        raise AssertionError("the block ran")
    assert content(former) == {"notes": "mine"}
    assert content(workspace_of(former) / "former") == {"sub/file": "former"}


def test_two_processes_do_not_write_the_same_folder(former):
    script = f"""
from pathlib import Path
from hf_elastic.hub.staging import staged
with staged(Path({str(former)!r}), lambda folder: None):
    print("in", flush=True)
    input()
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "in\n"
        with pytest.raises(BlockingIOError, match="Another process is writing"), staged(former, anything):
            raise AssertionError("the block ran")
        other.communicate("\n")
    assert other.returncode == 0
    assert content(former) == {}
    assert os.listdir(former.parent) == ["out"]


def test_of_many_runs_each_gets_its_turn_or_is_told(tmp_path):
    out = tmp_path / "out"

    def run(number: int) -> bool:
        try:
            with staged(out, anything) as folder:
                (folder / "file").write_text(str(number))
        except BlockingIOError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        finished = [number for number, done in enumerate(pool.map(run, range(64))) if done]
    assert int(content(out)["file"]) in finished
    assert os.listdir(tmp_path) == ["out"]
