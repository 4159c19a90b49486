"""Measures two teachers on evaluation data that two processes share unevenly, and writes down what each process saw.

torchrun --nproc_per_node 2 teacher_measure_worker.py FOLDER
"""

import json
import os
import sys
from pathlib import Path

import torch

from hf_elastic.training.teacher_validation import measure_teachers
from hf_elastic.training.teachers import Teacher
from tests.training.cases import make_rows, make_trainer
from tests.training.teacher_cases import make_teacher


def measure(folder: Path) -> dict[str, float]:
    """The losses of two teachers on eleven examples."""
    rows = make_rows("classification", 11, seed=1)
    trainer = make_trainer(folder, eval_dataset=rows, settings={"per_device_eval_batch_size": 3})
    teachers = [Teacher(make_teacher(), name="bert"), Teacher(make_teacher("Electra"), name="electra")]
    return measure_teachers(teachers, trainer.get_eval_dataloader(), trainer.accelerator)


if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(sys.argv[1])
    (target / f"{os.environ['RANK']}.json").write_text(json.dumps(measure(target)))
    torch.distributed.destroy_process_group()
