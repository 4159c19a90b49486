"""Two processes of which the second is short of memory, and over its budget."""

from pathlib import Path
from typing import Any

from torch import distributed

from hf_elastic.training.batch_size import AdaptMicroBatchSize
from hf_elastic.training.callbacks import find_callback
from tests.training.cases import LittleRoom, make_model, train

ROOM = 3
SETTINGS = {"sampling": "sandwich", "max_steps": 2, "learning_rate": 0.05, "optim": "sgd"}


def run(folder: Path) -> dict[str, Any]:
    """Gives the gradients of a training without room, and what this process decided in it and in one without time."""
    is_second, settings = distributed.get_rank() == 1, {**SETTINGS, "per_device_train_batch_size": 8}
    model = make_model("classification")
    if is_second:
        LittleRoom(model, ROOM)
    adapting, gradients = train(folder, model=model, adapt_micro_batch_size=True, **settings)
    rule = find_callback(adapting, AdaptMicroBatchSize).rule
    stopped, _ = train(folder, max_minutes=1e-9 if is_second else 1e6, **settings)
    return {"gradients": gradients, "decisions": (rule.size, rule.failed, stopped.state.global_step)}
