"""What tests of several files need, and takes long to make."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training import distributed_worker


@pytest.fixture(scope="session")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes had to say in `distributed_worker`; one start for all, which takes the longest."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    result = subprocess.run(
        [*command, "--log-dir", str(folder), distributed_worker.__file__, str(folder)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return [torch.load(folder / f"result-{rank}.pt", weights_only=True) for rank in range(2)]
