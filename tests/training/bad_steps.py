"""Trainings with a bad batch under two policies, in one process or several."""

from pathlib import Path
from typing import Any

from tests.training.guarded import guard_of, make_batches, make_guarded_trainer, weights_of


def run(folder: Path, batch_size: int) -> dict[str, Any]:
    """Gives the number of bad steps and the weights at the end under each policy."""
    runs = {}
    for policy in ("skip", "rollback"):
        trainer = make_guarded_trainer(
            folder / policy,
            make_batches(6, bad=(3,)),
            on_bad_step=policy,
            save_strategy="steps",
            save_steps=2,
            per_device_train_batch_size=batch_size,
            optim="sgd",
        )
        trainer.train()
        runs[policy] = (guard_of(trainer).bad_steps, weights_of(trainer))
    return {"runs": runs, "processes": trainer.accelerator.num_processes}
