"""Run by torchrun in two processes: all that tests want to know of such, in one start; each writes down what it saw.

torchrun --nproc_per_node 2 distributed_worker.py FOLDER
"""

import gc
import sys
from pathlib import Path
from typing import Any

import torch

from tests.training import bad_steps, scarce_resources, teacher_measuring
from tests.training.cases import losses_of, train

STEPS = {"max_steps": 2, "sampling": "sandwich", "temperature": 2.0}
# SGD, because Adam turns the rounding errors of a zero gradient into steps of full size. The learning rate and the
# weight decay make the weights depend on which parameters have a gradient at all.
STEPS |= {"optim": "sgd", "learning_rate": 0.05, "weight_decay": 0.1, "optim_args": "momentum=0.9"}
RUNS: dict[str, dict[str, Any]] = {
    **{sampling: {**STEPS, "sampling": sampling} for sampling in ("joint", "sandwich", "one_per_step")},
    **{
        f"{case}, teacher": {**STEPS, "case": case, "teacher": True}
        for case in ("regression", "masked_lm", "question_answering")
    },
    "activation checkpointing": {**STEPS, "activation_checkpointing": True},
    "one_per_step, activation checkpointing": {
        **STEPS,
        "sampling": "one_per_step",
        "activation_checkpointing": True,
    },
    # Exact only where all processes have as many units; of tokens they have not.
    "means per process": {**STEPS, "average_tokens_across_devices": False, "hidden_weight": 0.0},
}
# 4 in each of two processes, accumulated twice.
BATCHES = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "per_device_eval_batch_size": 8}


def run(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Trains once, and gives the gradients, the losses, the weights at the end and the evaluation."""
    trainer, gradients = train(folder, **settings)
    metrics = {key: value for key, value in trainer.evaluate().items() if key.endswith("loss")}
    return {
        "gradients": gradients,
        "losses": losses_of(trainer),
        "weights": {name: value.clone() for name, value in trainer.model.state_dict().items()},
        "metrics": metrics,
        "processes": trainer.accelerator.num_processes,
    }


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    gc.freeze()  # every training begins with a collection, which need not walk through what the imports made
    output = {
        "trainings": {name: run(folder, {**settings, **BATCHES}) for name, settings in RUNS.items()},
        "bad steps": bad_steps.run(folder / "bad_steps", batch_size=2),
        "scarce resources": scarce_resources.run(folder),
        "teachers": teacher_measuring.run(folder),
    }
    torch.save(output, folder / f"result-{torch.distributed.get_rank()}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
