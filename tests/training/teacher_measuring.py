"""Two teachers on evaluation data that two processes share unevenly."""

from pathlib import Path

from hf_elastic.training.teacher_validation import measure_teachers
from hf_elastic.training.teachers import Teacher
from tests.training.cases import make_rows, make_trainer
from tests.training.teacher_cases import make_teacher


def run(folder: Path) -> dict[str, float]:
    """The losses of two teachers on eleven examples."""
    rows = make_rows("classification", 11, seed=1)
    trainer = make_trainer(folder, eval_dataset=rows, settings={"per_device_eval_batch_size": 3})
    teachers = [Teacher(make_teacher(), name="bert"), Teacher(make_teacher("Electra"), name="electra")]
    return measure_teachers(teachers, trainer.get_eval_dataloader(), trainer.accelerator)
