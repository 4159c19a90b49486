"""Run by torchrun in two processes, with DeepSpeed on the CPU: trains with each stage of ZeRO, and saves.

DS_ACCELERATOR=cpu torchrun --nproc_per_node 2 deepspeed_worker.py RUNS.json
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState

from tests.training.cases import losses_of, make_trainer


def train_and_save(folder: Path, stage: int, settings: dict[str, Any]) -> str:
    """Trains in two processes; gives the kind of training that accelerate chose."""
    configuration = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",  # 1 where it is missing
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": True},
    }
    trainer = make_trainer(folder, settings={**settings, "deepspeed": configuration})
    trainer.train()
    metrics = {key: value for key, value in trainer.evaluate().items() if key.endswith("loss")}
    trainer.save_model(folder)
    if trainer.is_world_process_zero():
        (folder / "results.json").write_text(json.dumps([*losses_of(trainer), metrics]))
    kind = trainer.accelerator.distributed_type.value
    AcceleratorState._reset_state()  # it keeps the configuration of the first training
    return kind


def main() -> None:
    runs = Path(sys.argv[1])
    torch.set_num_threads(1)
    for name, (stage, settings) in json.loads(runs.read_text()).items():
        assert train_and_save(runs.parent / name, stage, settings) == "DEEPSPEED"
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
