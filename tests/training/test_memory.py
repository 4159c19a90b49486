import psutil
import pytest
import torch

from hf_elastic.training.memory import MemoryUse, control_group_memory, peak_memory, reset_peak_memory

CPU = torch.device("cpu")
MIB = 2**20


def test_share():
    assert MemoryUse(used=30, limit=40).share == 0.75


def test_use_of_the_machine():
    use = peak_memory(CPU)
    assert 0 < use.share <= 1
    assert use.limit <= psutil.virtual_memory().total
    assert use.used > psutil.Process().memory_info().rss / 2  # half, because pages are shared and others come and go


@pytest.mark.skipif(not psutil.LINUX, reason="only Linux tells the peak of a part of a process's life")
def test_peak_counts_what_a_step_has_given_back(monkeypatch):
    # Free of what other processes of the machine do: the limit of address space is ours alone.
    limit = psutil.Process().memory_info().vms + 512 * MIB
    monkeypatch.setattr(psutil.Process, "rlimit", lambda self, resource: (limit, limit))
    reset_peak_memory(CPU)
    before = peak_memory(CPU)
    assert before.limit == limit
    torch.ones(256 * MIB // 4)
    assert peak_memory(CPU).used - before.used > 200 * MIB
    reset_peak_memory(CPU)
    assert abs(peak_memory(CPU).used - before.used) < 50 * MIB


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_peak_of_a_device():
    device = torch.device("cuda")
    kept = torch.empty(8 * MIB, dtype=torch.uint8, device=device)
    reset_peak_memory(device)
    before = peak_memory(device)
    torch.empty(256 * MIB, dtype=torch.uint8, device=device)
    after = peak_memory(device)
    assert after.limit == torch.cuda.get_device_properties(device).total_memory
    assert abs(after.used - before.used - 256 * MIB) < 32 * MIB
    del kept


def write_group(folder, names, limit, used, droppable):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {droppable}\ntotal_inactive_file {droppable}\n")


SECOND = ("memory.max", "memory.current")
FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def test_control_groups_of_the_second_version(tmp_path):
    (tmp_path / "table").write_text("0::/batch/job\n")
    write_group(tmp_path / "fs/batch/job", SECOND, "max", 700, 100)
    write_group(tmp_path / "fs/batch", SECOND, 2000, 900, 300)
    assert list(control_group_memory(tmp_path / "table", tmp_path / "fs")) == [MemoryUse(600, 2000)]


def test_control_groups_of_the_first_version(tmp_path):
    (tmp_path / "table").write_text("5:cpu,cpuacct:/elsewhere\n4:memory:/job\n")
    write_group(tmp_path / "fs/memory/job", FIRST, 1000, 800, 50)
    write_group(tmp_path / "fs/memory", FIRST, 9223372036854771712, 5000, 0)
    assert list(control_group_memory(tmp_path / "table", tmp_path / "fs")) == [MemoryUse(750, 1000)]


def test_a_container_that_sees_its_group_as_the_root(tmp_path):
    (tmp_path / "table").write_text("0::/docker/1234\n")
    write_group(tmp_path / "fs", SECOND, 4000, 1000, 0)
    assert list(control_group_memory(tmp_path / "table", tmp_path / "fs")) == [MemoryUse(1000, 4000)]


def test_no_control_groups(tmp_path):
    assert list(control_group_memory(tmp_path / "missing", tmp_path)) == []
