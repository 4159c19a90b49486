"""Run in a process that kills itself: trains, and is killed in the middle of writing a checkpoint.

python killed_saving_worker.py OUTPUT_DIR
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from hf_elastic import ElasticTrainer
from tests.training.guarded import make_batches, make_guarded_trainer

KILLED_AT = 6


class KillWhileSaving(TrainerCallback, ExportableState):
    """Is asked for its state when weights and optimizer are on the disk, and what the trainer knows is not."""

    step = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.step = state.global_step

    def state(self) -> dict[str, Any]:
        if self.step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"args": {}, "attributes": {}}


def make_limited_trainer(output_dir: Path, **keywords: Any) -> ElasticTrainer:
    """Eight steps, with a checkpoint every second one and one of them kept."""
    settings = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}
    return make_guarded_trainer(output_dir, make_batches(8), **settings, **keywords)


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_limited_trainer(Path(sys.argv[1]), callbacks=[KillWhileSaving()]).train()
