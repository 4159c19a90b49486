"""Tasks are found by their names, and `all` is what the benchmark counts."""

import pytest

from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task, named_tasks

GLUE = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"]
SUPER_GLUE = ["boolq", "cb", "copa", "multirc", "record", "rte", "wic", "wsc", "axb", "axg"]


@pytest.mark.parametrize(
    ("benchmark", "names", "with_diagnostics", "expected"),
    [
        ("glue", ["all"], True, GLUE),
        ("glue", ["all"], False, GLUE[:-1]),
        ("super_glue", ["all"], True, SUPER_GLUE),
        ("super_glue", ["all"], False, SUPER_GLUE[:-2]),
        ("super_glue", ["wsc.fixed", "all", "rte"], True, ["wsc.fixed", *SUPER_GLUE]),
        ("super_glue", ["axb", "all", "all"], False, ["axb", *SUPER_GLUE[:-2]]),
        ("glue", ["rte", "ax", "rte"], False, ["rte", "ax"]),
        ("glue", [], True, []),
    ],
)
def test_names_stand_for_tasks_each_once(benchmark, names, with_diagnostics, expected):
    tasks = named_tasks(benchmark, names, with_diagnostics)
    assert [task.name for task in tasks] == expected
    assert {task.benchmark for task in tasks} <= {benchmark}


def test_another_form_has_the_rows_of_its_task():
    forms = [task for tasks in BENCHMARKS.values() for task in tasks.values() if task.form_of is not None]
    assert [(task.name, task.form_of) for task in forms] == [("wsc.fixed", "wsc")]
    for task in forms:
        original = find_task(task.benchmark, task.form_of)
        assert (task.splits, task.label_names, task.metrics) == (
            original.splits,
            original.label_names,
            original.metrics,
        )


def test_a_task_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="glue has no task 'boolq'. 'boolq' is a task of super_glue"):
        named_tasks("glue", ["rte", "boolq"])
    with pytest.raises(ValueError, match="benchmark='superglue' is none of 'glue', 'super_glue'"):
        named_tasks("superglue", ["all"])
