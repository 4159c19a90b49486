"""Run by torchrun in two processes: trains a model that transformers has split between them with FSDP2.

torchrun --nproc_per_node 2 sharding_worker.py FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from transformers.distributed import DistributedConfig

from hf_elastic.modeling.modeling_elastic import ElasticPreTrainedModel
from tests.training.cases import GradientRecorder, losses_of, make_model, make_trainer


def whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Puts together what the processes have of each tensor; all of them have to call it."""
    return {name: getattr(t, "full_tensor", lambda t=t: t)().detach().clone() for name, t in tensors.items()}


def load_in_parts(model: ElasticPreTrainedModel, folder: Path, **sizes: int) -> ElasticPreTrainedModel:
    """Loads a model so that it is split between the processes."""
    if distributed.get_rank() == 0:
        model.save_pretrained(folder)
    distributed.barrier()
    return type(model).from_pretrained(folder, distributed_config=DistributedConfig(**sizes))


def run(folder: Path, settings: dict[str, Any], in_parts: bool = False) -> dict[str, Any]:
    """Trains once, saves, and gives the gradients, the losses, the weights at the end and the evaluation."""
    settings = dict(settings)
    case, recorder = settings.pop("case", "classification"), GradientRecorder()
    # Of an even number of tokens, which two processes can share.
    model = make_model(case, vocab_size=100)
    if in_parts:
        model = load_in_parts(model, folder / "start", fsdp_size=2)
    trainer = make_trainer(folder, case, settings, model=model, callbacks=[recorder])
    trainer.train()
    metrics = {key: value for key, value in trainer.evaluate().items() if key.endswith("loss")}
    trainer.save_model(folder / "saved")
    weight = model.base_model.layers[0].mlp.up_proj.weight
    return {
        "gradients": [whole(step) for step in recorder.steps],
        "losses": losses_of(trainer),
        "weights": whole(dict(model.named_parameters())),
        "metrics": metrics,
        "part": weight.to_local().numel() / weight.numel() if in_parts else 1.0,
    }


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    runs = json.loads((folder / "runs.json").read_text())
    output = {name: run(folder / name, settings, in_parts=True) for name, settings in runs.items()}
    if distributed.get_rank() == 0:
        torch.save(output, folder / "results.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
