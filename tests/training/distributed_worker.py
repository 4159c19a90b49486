"""Run by torchrun in two processes: trains what the arguments say, and the first process writes down what it saw.

torchrun --nproc_per_node 2 distributed_worker.py RUNS.json RESULTS.pt
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from tests.training.cases import losses_of, train
from tests.training.teacher_cases import make_teacher


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
    runs, results = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    output = {name: run(runs.parent, settings) for name, settings in json.loads(runs.read_text()).items()}
    if torch.distributed.get_rank() == 0:
        torch.save(output, results)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
