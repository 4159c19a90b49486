"""The benchmarks by name, and finding a task in them."""

from . import glue, super_glue
from .task import Task

BENCHMARKS: dict[str, dict[str, Task]] = {
    "glue": {task.name: task for task in glue.TASKS},
    "super_glue": {task.name: task for task in super_glue.TASKS},
}
HUB_IDS = {"glue": glue.HUB_ID, "super_glue": super_glue.HUB_ID}


def find_task(benchmark: str, name: str) -> Task:
    """Gives a task.

    Args:
        benchmark: `"glue"` or `"super_glue"`.
        name: Name of the task.

    Raises:
        ValueError: If there is none of that name; lists those that there are.
    """
    if benchmark not in BENCHMARKS:
        raise ValueError(f"benchmark={benchmark!r} is none of {', '.join(map(repr, BENCHMARKS))}.")
    tasks = BENCHMARKS[benchmark]
    if name not in tasks:
        elsewhere = [other for other, there in BENCHMARKS.items() if name in there]
        hint = f" {name!r} is a task of {elsewhere[0]}." if elsewhere else ""
        raise ValueError(f"{benchmark} has no task {name!r}.{hint} Its tasks are {', '.join(tasks)}.")
    return tasks[name]
