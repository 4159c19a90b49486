"""Lets a teacher predict a part of the examples into a cache that other processes fill at the same time."""

import sys

from hf_elastic.training.teacher_cache import TeacherCache
from hf_elastic.training.teachers import Teacher
from tests.training.cases import collate
from tests.training.teacher_cases import make_numbered_rows, make_teacher

NUMBER = 64


def main(folder: str, first: str) -> None:
    rows = make_numbered_rows(NUMBER)
    cache = TeacherCache(folder, Teacher(make_teacher()), NUMBER)
    for i in range(int(first), NUMBER, 2):
        cache.observe(collate([rows[i]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
