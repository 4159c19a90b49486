"""How much memory a step has needed, of what there is: the device's, or the process's and the machine's."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

_UNLIMITED = 2**60  # control groups of the first version write "no limit" as a number beyond all memory


class MemoryUse(NamedTuple):
    """Bytes in use, and how many there may be."""

    used: int
    limit: int

    @property
    def share(self) -> float:
        """The share in use, in [0, 1] unless the limit is already passed."""
        return self.used / self.limit


def reset_peak_memory(device: torch.device) -> None:
    """Forgets the peak so far, so that [`peak_memory`] is the peak from here on.

    Args:
        device: Where the model runs.
    """
    if _has_own_memory(device):
        torch.get_device_module(device).reset_peak_memory_stats()
        return
    # What Linux knows as the high water mark; elsewhere only the memory at the time of asking is known.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> MemoryUse:
    """The most memory in use since [`reset_peak_memory`], where it is scarcest.

    On a device: what tensors needed at most, and what others hold. Free memory that torch keeps for later counts as
    free. Otherwise the tightest of: the machine's memory, the limit of any control group of the process (a container,
    a batch job), and its limit of address space (`ulimit -v`).

    Args:
        device: Where the model runs. A device without memory of its own counts as the machine.

    Returns:
        Bytes in use and the limit that they are closest to.
    """
    if _has_own_memory(device):
        module = torch.get_device_module(device)
        free, total = module.mem_get_info()
        return MemoryUse(total - free - module.memory_reserved() + module.max_memory_allocated(), total)
    process, machine = psutil.Process(), psutil.virtual_memory()
    resident, addressed = process.memory_info()[:2]
    returned = max(_peak_resident() - resident, 0)  # what the step had, and has given back since
    uses = [MemoryUse(machine.total - machine.available + returned, machine.total)]
    uses += [MemoryUse(use.used + returned, use.limit) for use in control_group_memory()]
    if hasattr(psutil, "RLIMIT_AS"):
        limit, _ = process.rlimit(psutil.RLIMIT_AS)
        if 0 < limit < _UNLIMITED:
            uses.append(MemoryUse(addressed + returned, limit))
    return max(uses, key=lambda use: use.share)


def control_group_memory(
    table: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> Iterator[MemoryUse]:
    """The memory of each control group of this process that has a limit, without files that can be dropped.

    Args:
        table: The file that names the groups.
        root: Where control groups are mounted.

    Yields:
        One use per group with a limit: the process's own one and those above it.

    References:
        https://docs.kernel.org/admin-guide/cgroup-v2.html and .../cgroup-v1/memory.html
    """
    lines = table.read_text().splitlines() if table.is_file() else []
    for line in lines:
        _, controllers, group = line.split(":", maxsplit=2)
        if controllers == "":
            mount, limit, used, files = root, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, files = root / "memory", "total_inactive_file"
            limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        own = mount / group.strip("/")
        for folder in [own, *(parent for parent in own.parents if parent.is_relative_to(mount))]:
            # Where a container sees its own group as the root, the folders of the table do not exist.
            text = (folder / limit).read_text().strip() if (folder / limit).is_file() else "max"
            if text != "max" and int(text) < _UNLIMITED:
                droppable = re.search(rf"^{files} (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
                yield MemoryUse(int((folder / used).read_text()) - int(droppable[1] if droppable else 0), int(text))


def _has_own_memory(device: torch.device) -> bool:
    return device.type != "cpu" and hasattr(torch.get_device_module(device), "mem_get_info")


def _peak_resident() -> int:
    status = Path("/proc/self/status")
    peak = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE) if status.is_file() else None
    return int(peak[1]) * 1024 if peak else 0
