"""Run in a process whose memory is limited: trains one step with too little memory for its batch, and one with enough.

python limited_worker.py FOLDER
"""

import resource
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

from hf_elastic import ElasticTrainer
from hf_elastic.training.batch_size import AdaptMicroBatchSize
from hf_elastic.training.callbacks import find_callback
from tests.training.cases import GradientRecorder, make_model, make_rows, make_trainer

ROWS = 128
LENGTH = 64
ROOM = 40 * 2**20  # bytes; all rows at once need about 115 MiB


def collate_long(rows):
    """Rows of 64 tokens, whose activations are large beside the tiny model."""
    ids = torch.tensor([(row["input_ids"] * LENGTH)[:LENGTH] for row in rows])
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


@contextmanager
def limited_memory():
    """Lets the process have no more than it has now, and some room."""
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + ROOM, unlimited[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)


def train(folder: Path, rows: int, **settings) -> tuple[ElasticTrainer, dict[str, torch.Tensor]]:
    """One step of so many rows; gives the trainer and the gradients."""
    settings |= {"max_steps": 1, "per_device_train_batch_size": rows, "sampling": "joint"}
    model, recorder = make_model("classification"), GradientRecorder()
    model.config.subnets = {name: model.config.subnets[name] for name in ("large", "tiny")}
    trainer = make_trainer(
        folder,
        settings=settings,
        model=model.double(),  # sums over so many tokens lose digits in single precision
        train_dataset=make_rows("classification", rows),
        data_collator=collate_long,
        callbacks=[recorder],
    )
    trainer.train()
    return trainer, recorder.steps[0]


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)  # it remembers that it found no memory for a kernel, and fails ever after
    results = Path(sys.argv[1])
    train(results, rows=2)  # loads what is only loaded when it is needed
    with limited_memory():
        trainer, limited = train(results, ROWS, adapt_micro_batch_size=True)
    _, free = train(results, ROWS)
    size = find_callback(trainer, AdaptMicroBatchSize).rule.size
    torch.save({"limited": limited, "free": free, "size": size}, results / "limited.pt")
