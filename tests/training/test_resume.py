"""A training that was killed goes on as if it had not been."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.training import interrupted_worker
from tests.training.cases import losses_of
from tests.training.interrupted_worker import make_resumable_trainer


@pytest.fixture
def one_thread():
    """Sums in another order would round in another way."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def kill_in_the_middle(output_dir: Path, run: str, step: int) -> None:
    """Trains in another process, and kills it without warning when it has begun the step after some checkpoint."""
    process = subprocess.Popen(
        [sys.executable, interrupted_worker.__file__, str(output_dir), run, str(step)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 240
        while not (output_dir / "waiting").exists():
            assert process.poll() is None, f"the training ended with {process.returncode}"
            assert time.monotonic() < deadline, "the training never came to the middle"
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(
    ("run", "first", "last"),
    [("accumulated", 1, 15), pytest.param("adapted", 1, 2, id="while sizes change"), ("adapted", 3, 15)],
)
def test_resumed_training_has_the_losses_of_an_unbroken_one(tmp_path, one_thread, run, first, last):
    step = random.SystemRandom().randint(first, last)  # another one each time, which a failure shows
    kill_in_the_middle(tmp_path / "killed", run, step)
    assert max(int(path.name.split("-")[1]) for path in (tmp_path / "killed").glob("checkpoint-*")) == step

    resumed = make_resumable_trainer(tmp_path / "killed", run)
    resumed.train(resume_from_checkpoint=True)
    unbroken = make_resumable_trainer(tmp_path / "unbroken", run)
    unbroken.train()

    assert len(losses_of(unbroken)) == 16
    assert losses_of(resumed) == losses_of(unbroken)
    for name, value in unbroken.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value)
    if run == "adapted":
        sizes = [
            [log["micro_batch_size"] for log in t.state.log_history if "loss" in log] for t in (resumed, unbroken)
        ]
        assert sizes[0] == sizes[1] == [3, 2] + [1] * 14
