"""Run by torchrun in two processes of which the second is short of memory and over its budget.

torchrun --nproc_per_node 2 resource_worker.py FOLDER
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from hf_elastic.training.batch_size import AdaptMicroBatchSize
from hf_elastic.training.callbacks import find_callback
from tests.training.cases import LittleRoom, make_model, train

ROOM = 3
SETTINGS = {"sampling": "sandwich", "max_steps": 2, "learning_rate": 0.05, "optim": "sgd"}


def main() -> None:
    folder, is_second = Path(sys.argv[1]), os.environ["RANK"] == "1"
    torch.set_num_threads(1)
    settings = {**SETTINGS, "per_device_train_batch_size": 8}
    model = make_model("classification")
    if is_second:
        LittleRoom(model, ROOM)
    adapting, gradients = train(folder, model=model, adapt_micro_batch_size=True, **settings)
    rule = find_callback(adapting, AdaptMicroBatchSize).rule
    stopped, _ = train(folder, max_minutes=1e-9 if is_second else 1e6, **settings)
    of_all: list[Any] = [None, None]
    distributed.all_gather_object(of_all, (rule.size, rule.failed, stopped.state.global_step))
    if distributed.get_rank() == 0:
        torch.save({"gradients": gradients, "decisions": of_all}, folder / "results.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
