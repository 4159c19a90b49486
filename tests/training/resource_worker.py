"""Run by torchrun in two processes of which the second is short of memory and over its budget.

torchrun --nproc_per_node 2 resource_worker.py FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from hf_elastic.training.batch_size import AdaptMicroBatchSize
from hf_elastic.training.budget import TrainingBudget
from tests.training.resource_cases import MicroBatchTrainer, train_in_micro_batches

ROOM = 3
SETTINGS = {"sampling": "sandwich", "max_steps": 2, "learning_rate": 0.05, "optim": "sgd"}


def fail_in_the_second_process(part: dict[str, Any]) -> None:
    """With more rows than there is room for."""
    if distributed.get_rank() == 1 and len(part["input_ids"]) > ROOM:
        raise torch.OutOfMemoryError("CUDA out of memory.")


class ShortBudget(TrainingBudget):
    """One that the second process alone has used up at its first step."""

    def on_examples(self, examples: int, passes: float) -> None:
        super().on_examples(examples if distributed.get_rank() == 1 else 0, passes)


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    MicroBatchTrainer.before_part = staticmethod(fail_in_the_second_process)
    adapt, budget = AdaptMicroBatchSize(), ShortBudget()
    settings = {**SETTINGS, "per_device_train_batch_size": 8}
    _, gradients = train_in_micro_batches(folder, callbacks=[adapt], adapt_micro_batch_size=True, **settings)
    MicroBatchTrainer.before_part = staticmethod(lambda part: None)
    stopped, _ = train_in_micro_batches(folder, callbacks=[budget], max_examples=10, **settings)
    of_all: list[Any] = [None, None]
    distributed.all_gather_object(of_all, (adapt.rule.size, adapt.rule.failed, stopped.state.global_step))
    if distributed.get_rank() == 0:
        torch.save({"gradients": gradients, "decisions": of_all}, folder / "results.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
