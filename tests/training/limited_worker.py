"""Run in a process whose memory is limited: trains one step with too little memory for its batch, and one with enough.

python limited_worker.py FOLDER
"""

import resource
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

from hf_elastic.training.batch_size import AdaptMicroBatchSize
from tests.training.cases import make_model
from tests.training.resource_cases import train_in_micro_batches

ROWS = 256
LENGTH = 64
ROOM = 80 * 2**20  # bytes; all rows at once need about 230 MiB


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


def train(folder: Path, rows: int, **settings):
    return train_in_micro_batches(
        folder,
        rows=rows,
        data_collator=collate_long,
        model=make_model(
            "classification"
        ).double(),  # sums over so many tokens are rounded visibly in single precision
        max_steps=1,
        per_device_train_batch_size=rows,
        sampling="joint",
        **settings,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)  # it remembers that it found no memory for a kernel, and fails ever after
    results = Path(sys.argv[1])
    train(results, rows=2)  # loads what is only loaded when it is needed
    adapt = AdaptMicroBatchSize()
    with limited_memory():
        _, (limited,) = train(results, ROWS, callbacks=[adapt], adapt_micro_batch_size=True)
    _, (free,) = train(results, ROWS)
    torch.save({"limited": limited, "free": free, "size": adapt.rule.size}, results / "limited.pt")
