"""Arguments for teachers that cannot be followed are errors."""

import pytest

from hf_elastic.training.teacher_arguments import TeacherArguments


@pytest.mark.parametrize(
    "settings",
    [{}, {"teacher_mixing": "confidence", "teacher_dtype": "bfloat16", "teacher_cache_dir": "new/folder"}],
)
def test_possible_values(settings):
    TeacherArguments(**settings).check_teacher_arguments()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"teacher_mixing": "best"}, "teacher_mixing='best' is unknown.*weights, confidence, validation"),
        ({"teacher_dtype": "int8"}, "teacher_dtype='int8' is unknown.*bfloat16"),
    ],
)
def test_unknown_values(settings, message):
    with pytest.raises(ValueError, match=message):
        TeacherArguments(**settings).check_teacher_arguments()


def test_a_cache_that_is_a_file(tmp_path):
    path = tmp_path / "cache"
    path.write_text("")
    with pytest.raises(ValueError, match="teacher_cache_dir=.* is a file"):
        TeacherArguments(teacher_cache_dir=str(path)).check_teacher_arguments()
