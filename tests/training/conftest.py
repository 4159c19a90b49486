"""What tests of several files need, and takes long to make."""

from typing import Any

import pytest
import torch

from tests.training import distributed_worker
from tests.training.launching import run_two_processes


@pytest.fixture(scope="session")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes had to say in `distributed_worker`; one start for all, which takes the longest."""
    folder = tmp_path_factory.mktemp("two")
    run_two_processes(distributed_worker.__file__, folder)
    return [torch.load(folder / f"result-{rank}.pt", weights_only=True) for rank in range(2)]
