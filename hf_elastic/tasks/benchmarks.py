"""The benchmarks by name, and finding a task in them."""

from collections.abc import Sequence

from . import glue, super_glue
from .task import Task

BENCHMARKS: dict[str, dict[str, Task]] = {
    "glue": {task.name: task for task in glue.TASKS},
    "super_glue": {task.name: task for task in super_glue.TASKS},
}
HUB_IDS = {"glue": glue.HUB_ID, "super_glue": super_glue.HUB_ID}


def tasks_of(benchmark: str) -> dict[str, Task]:
    """Gives the tasks of a benchmark by name.

    Args:
        benchmark: `"glue"` or `"super_glue"`.

    Raises:
        ValueError: If it is another one.
    """
    if benchmark not in BENCHMARKS:
        raise ValueError(f"benchmark={benchmark!r} is none of {', '.join(map(repr, BENCHMARKS))}.")
    return BENCHMARKS[benchmark]


def named_tasks(benchmark: str, names: Sequence[str], with_diagnostics: bool = True) -> list[Task]:
    """Gives tasks by their names, each once.

    Args:
        benchmark: `"glue"` or `"super_glue"`.
        names: Names of tasks; `"all"` stands for the benchmark, without other forms of its tasks.
        with_diagnostics: Whether `"all"` has the diagnostics as well.

    Raises:
        ValueError: If there is no such benchmark, or none of a name.
    """
    everything = [
        task.name
        for task in tasks_of(benchmark).values()
        if task.form_of is None and (with_diagnostics or task.model_of is None)
    ]
    expanded = [each for name in names for each in (everything if name == "all" else [name])]
    return [find_task(benchmark, name) for name in dict.fromkeys(expanded)]


def find_task(benchmark: str, name: str) -> Task:
    """Gives a task.

    Args:
        benchmark: `"glue"` or `"super_glue"`.
        name: Name of the task.

    Raises:
        ValueError: If there is none of that name; lists those that there are.
    """
    tasks = tasks_of(benchmark)
    if name not in tasks:
        elsewhere = [other for other, there in BENCHMARKS.items() if name in there]
        hint = f" {name!r} is a task of {elsewhere[0]}." if elsewhere else ""
        raise ValueError(f"{benchmark} has no task {name!r}.{hint} Its tasks are {', '.join(tasks)}.")
    return tasks[name]
