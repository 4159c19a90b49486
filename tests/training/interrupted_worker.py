"""Run in a process that is to be killed: trains with a checkpoint per step, and stands still in the middle.

python interrupted_worker.py OUTPUT_DIR
"""

import sys
import time
from pathlib import Path

import torch
from transformers import TrainerCallback

from hf_elastic import ElasticTrainer
from tests.training.cases import make_model, make_trainer

STOP_AFTER = 5


class StandStill(TrainerCallback):
    """Waits in the middle of the accumulation of a step, until the process is killed."""

    def on_substep_end(self, args, state, control, **kwargs):
        if state.global_step == STOP_AFTER:
            Path(args.output_dir, "waiting").touch()
            time.sleep(600)


def make_resumable_trainer(output_dir: Path, **keywords) -> ElasticTrainer:
    """Two epochs of eight steps, with dropout and random draws."""
    settings = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-3,
        "distillation_weight_end": 0.0,
        "distillation_schedule": "linear",
        "save_strategy": "steps",
        "save_steps": 1,
    }
    model = make_model("classification", dropout=0.2)
    teachers = [make_model("classification", dropout=0.2, seed=5)]
    return make_trainer(output_dir, settings=settings, model=model, teachers=teachers, **keywords)


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_resumable_trainer(Path(sys.argv[1]), callbacks=[StandStill()]).train()
