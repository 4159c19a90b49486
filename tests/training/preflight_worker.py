"""Run by torchrun in two processes: checks trainings, and each process writes down what it was told.

torchrun --nproc_per_node 2 preflight_worker.py FOLDER
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from hf_elastic import ElasticTrainer
from hf_elastic.training.preflight import check_training
from tests.training.cases import collate, make_learnable_rows, make_model, make_trainer

SETTINGS = {"per_device_train_batch_size": 4, "learning_rate": 1e-3, "max_steps": 6}


def fail_above(rows: int) -> Callable[..., Tensor]:
    """A loss that a batch of more rows has no memory for."""

    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        if len(labels) > rows:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return torch.nn.functional.cross_entropy(outputs.logits, labels)

    return loss


def make(folder: Path, **keywords: Any) -> ElasticTrainer:
    settings = {**SETTINGS, "seed": keywords.pop("seed", 0)}
    model = make_model("classification", dropout=0.1)
    return make_trainer(folder, settings=settings, model=model, train_dataset=make_learnable_rows(48), **keywords)


def collate_badly_in_the_second_process(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    batch = collate(rows)
    return {**batch, "labels": batch["labels"] + 7 * distributed.get_rank()}


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    trainer = make(folder / "out")
    works, rank = check_training(trainer, steps=4), distributed.get_rank()
    seeds = check_training(make(folder / "out", seed=distributed.get_rank()), quick=True)
    rows = check_training(make(folder / "out", data_collator=collate_badly_in_the_second_process), quick=True)
    reports = {"other seeds": seeds, "bad rows in one": rows}
    told = {name: {r.name: [r.verdict, r.seen] for r in report.results} for name, report in reports.items()}
    told["works"] = {r.name: [r.verdict, not r.remedy] for r in works.results}
    (folder / f"{rank}.json").write_text(json.dumps(told))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
