"""Starts scripts in processes that train together."""

import os
import subprocess
import sys
from pathlib import Path


def run_two_processes(script: str, folder: Path, *arguments: str) -> None:
    """Runs a script with torchrun, and fails with what it wrote if it fails.

    Args:
        script: The file.
        folder: Where logs of the processes go; the script's first argument.
        arguments: Further ones.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    result = subprocess.run(
        [*command, "--log-dir", str(folder / "log"), script, str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-4000:]
