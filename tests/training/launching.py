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
    result = launch_two_processes(script, str(folder), *arguments, log_dir=folder / "log")
    assert result.returncode == 0, result.stderr[-4000:]


def launch_two_processes(
    script: str, *arguments: str, log_dir: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script with torchrun, and gives how it ended and what it wrote.

    Args:
        script: The file.
        arguments: Its arguments.
        log_dir: Where logs of the processes go.
        variables: Of the environment.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    own = {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, "--log-dir", str(log_dir), script, *arguments],
        env={**os.environ, **variables, **own},
        capture_output=True,
        text=True,
        timeout=1200,  # DeepSpeed compiles an operator at its first start
    )
