"""A file is whole or as it was."""

import pytest

from hf_elastic.tasks.atomic_files import replaced_file


def test_a_new_file_in_a_new_folder(tmp_path):
    with replaced_file(tmp_path / "new" / "scores") as file:
        file.write(b"1")
    assert (tmp_path / "new" / "scores").read_bytes() == b"1"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["scores"]


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "scores").write_bytes(b"old")

    def fail():
        with replaced_file(tmp_path / "scores") as file:
            file.write(b"half of")
            raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        fail()
    assert (tmp_path / "scores").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["scores"]


def test_it_can_be_read_by_whoever_could_read_other_new_files(tmp_path):
    (tmp_path / "other").write_bytes(b"")
    with replaced_file(tmp_path / "scores"):
        pass
    assert (tmp_path / "scores").stat().st_mode == (tmp_path / "other").stat().st_mode
