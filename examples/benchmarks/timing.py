"""Times functions side by side: single-threaded processor time, in turns, compared pair by pair.

Wall-clock time of several threads says little on a machine that others use too; processor time of one thread does, and
taking turns makes both sides meet the same disturbances.
"""

import ctypes
import statistics
import sys
import time
from collections.abc import Callable


def keep_freed_memory() -> None:
    """Makes glibc keep what is freed, so that no pass pays for getting its memory from the system again.

    Whether it does otherwise depends on the order of all allocations before, not on the model: the same model's passes
    meet none or tens of thousands of page faults, which is up to a tenth of their time.
    """
    if sys.platform == "linux":
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((-1, 2**30), (-3, 2**25)):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD (at most 32 MiB)
            if mallopt(option, value) != 1:
                raise OSError(f"mallopt({option}, {value}) failed: the C library is not glibc.")


def compare(first: Callable[[], object], second: Callable[[], object], repeats: int, warmup: int = 5) -> list[float]:
    """Gives the medians of the processor time in milliseconds of both, and the median of their ratios, first / second.

    Who goes first changes from turn to turn.
    """
    for _ in range(warmup):
        first()
        second()
    pairs = []
    for turn in range(repeats):
        if turn % 2:
            seconds = processor_time(second)
            pairs.append((processor_time(first), seconds))
        else:
            seconds = processor_time(first)
            pairs.append((seconds, processor_time(second)))
    ratios = [one / other for one, other in pairs]
    medians = [1000 * statistics.median(times) for times in zip(*pairs, strict=True)]
    return [*medians, statistics.median(ratios)]


def processor_time(function: Callable[[], object]) -> float:
    """Gives the processor time of one call in seconds."""
    start = time.process_time()
    function()
    return time.process_time() - start
