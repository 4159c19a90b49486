"""Run by torchrun in two processes: all that tests want to know of such, in one start; each writes down what it saw.

torchrun --nproc_per_node 2 distributed_worker.py FOLDER
"""

import gc
import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch

from tests.training import bad_steps, scarce_resources, teacher_measuring
from tests.training.cases import losses_of, train
from tests.training.teacher_cases import make_teacher

STEPS = {"max_steps": 2, "sampling": "sandwich", "temperature": 2.0}
# SGD, because Adam turns the rounding errors of a zero gradient into steps of full size. The learning rate and the
# weight decay make the weights depend on which parameters have a gradient at all.
STEPS |= {"optim": "sgd", "learning_rate": 0.05, "weight_decay": 0.1, "optim_args": "momentum=0.9"}
# With a threshold that is always passed, so that each step has fewer rows at once than the one before.
ADAPTED = {"max_steps": 3, "adapt_micro_batch_size": True, "memory_threshold": 1e-6}
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
    "core gradient scale": {**STEPS, "core_gradient_scale": 0.5},
    "layer drop": {**STEPS, "layer_drop": 0.4},
    "shorter inputs": {**STEPS, "subnet_max_lengths": {"small": 8, "tiny": 5}},
    "relations": {**STEPS, "relation_weight": 1.0, "attention_weight": 0.5},
    "weights by loss": {**STEPS, "max_steps": 3, "subnet_weighting": "by_loss"},
    "schedules": {
        **STEPS,
        "max_steps": 3,
        "distillation_schedule": "linear",
        "distillation_weight_end": 0.3,
        "subnet_weighting": "toward_largest",
        "detachment_probability": 0.5,
    },
    "narrow teacher": {**STEPS, "max_steps": 3, "teacher": "Bert", "hidden_weight": 1.0},
    "group penalty": {**STEPS, "group_penalty": 0.01},
    "micro-batches": {**STEPS, "micro_batch_size": 3},
    "adapted micro-batches": {**STEPS, **ADAPTED},
    "one_per_step, adapted micro-batches": {**STEPS, **ADAPTED, "sampling": "one_per_step"},
    "average of the weights": {**STEPS, "max_steps": 3, "weight_averaging": "ema", "ema_decay": 0.5},
    "adaptive clipping": {**STEPS, "adaptive_clipping": 0.02},
    "percentile clipping": {**STEPS, "max_steps": 3, "percentile_clipping": 10},
    "learning rates by depth": {**STEPS, "layer_lr_decay": 0.5, "head_lr_multiplier": 3.0},
    # Exact only where all processes have as many units; of tokens they have not.
    "means per process": {**STEPS, "average_tokens_across_devices": False, "hidden_weight": 0.0},
}
if importlib.util.find_spec("torchjd"):
    RUNS["gradient surgery"] = {**STEPS, "gradient_conflicts": "pcgrad"}
    RUNS["gradient surgery, adapted micro-batches"] = {**STEPS, **ADAPTED, "gradient_conflicts": "pcgrad"}


def in_two_processes(run: dict[str, Any]) -> dict[str, Any]:
    """A run with batches of 4 in each of two processes, accumulated twice if it can."""
    steps = 1 if "adapt_micro_batch_size" in run else 2
    batches = {"per_device_train_batch_size": 8 // steps, "gradient_accumulation_steps": steps}
    return {**run, **batches, "per_device_eval_batch_size": 8}


def run(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Trains once, and gives the gradients, the losses, the weights at the end and the evaluation.

    `"teacher"` may name an architecture: a teacher of it is narrower than the student.
    """
    if isinstance(settings.get("teacher"), str):
        settings = {**settings, "teacher": make_teacher(settings["teacher"])}
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
        "trainings": {name: run(folder, in_two_processes(settings)) for name, settings in RUNS.items()},
        "bad steps": bad_steps.run(folder / "bad_steps", batch_size=2),
        "scarce resources": scarce_resources.run(folder),
        "teachers": teacher_measuring.run(folder),
    }
    torch.save(output, folder / f"result-{torch.distributed.get_rank()}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
