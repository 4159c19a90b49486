"""Run in a process that is to be killed: trains with a checkpoint per step, and stands still in the middle of one.

python interrupted_worker.py OUTPUT_DIR RUN STEP
"""

import sys
import time
from pathlib import Path

import torch
from transformers import TrainerCallback

from hf_elastic import ElasticTrainer
from tests.training.cases import collate, make_arguments, make_model, make_rows
from tests.training.teacher_cases import make_teacher

# Rows that the small machine of a run has room for.
ROOM = 6
RUNS = {
    "accumulated": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    # Halved at once, and smaller with each step, as the threshold is always passed. What else has a state joins in.
    "adapted": {
        "per_device_train_batch_size": 8,
        "adapt_micro_batch_size": True,
        "memory_threshold": 1e-6,
        "weight_averaging": "ema",
        "ema_decay": 0.7,
        "subnet_weighting": "by_loss",
        "percentile_clipping": 50,
        "detachment_probability": 0.3,
        "hidden_weight": 0.5,
    },
}


class SmallMachineTrainer(ElasticTrainer):
    """Runs out of memory with more rows at once than it has room for."""

    def _train_part(self, model, num_items_in_batch, inputs, reduces):
        if self.args.adapt_micro_batch_size and len(inputs["input_ids"]) > ROOM:
            torch.rand(1)  # what a step has drawn before it fails is drawn again
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super()._train_part(model, num_items_in_batch, inputs, reduces)


class StandStill(TrainerCallback):
    """Waits within a step until the process is killed: between two batches of it, or before its optimizer step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_substep_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            Path(args.output_dir, "waiting").touch()
            time.sleep(600)

    on_pre_optimizer_step = on_substep_end


def make_resumable_trainer(output_dir: Path, run: str, **keywords) -> ElasticTrainer:
    """Two epochs of eight steps, with dropout and random draws."""
    settings = {
        **RUNS[run],
        "num_train_epochs": 2,
        "learning_rate": 1e-3,
        "distillation_weight_end": 0.0,
        "distillation_schedule": "linear",
        "save_strategy": "steps",
        "save_steps": 1,
    }
    teachers = [make_model("classification", dropout=0.2, seed=5)]
    if run == "adapted":
        teachers = [make_teacher("Bert")]  # of another hidden size
    return SmallMachineTrainer(
        make_model("classification", dropout=0.2),
        make_arguments(output_dir, **settings),
        train_dataset=make_rows("classification", 64),
        data_collator=collate,
        teachers=teachers,
        **keywords,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    output_dir, run, step = sys.argv[1:]
    make_resumable_trainer(Path(output_dir), run, callbacks=[StandStill(int(step))]).train()
