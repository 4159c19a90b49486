"""Teachers are measured as transformers' own trainer evaluates them, and their weights outlive the process."""

import pytest
import transformers

from hf_elastic.training.callbacks import find_callback
from hf_elastic.training.collators import UnpaddingCollator
from hf_elastic.training.teacher_validation import TeacherWeights, measure_teachers, weigh_by_validation
from hf_elastic.training.teachers import Teacher
from tests.training import teacher_measuring
from tests.training.cases import CASES, collate, make_model, make_rows, make_trainer
from tests.training.teacher_cases import make_teacher

WEIGHTS = {"bert": 0.25, "electra": 1 / 3}


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_an_evaluation(tmp_path, case):
    # In one batch, since transformers means the means of batches where they differ in tokens; and unpadded, because
    # the task loss takes padding for a possible answer otherwise.
    collator = collate if case == "multiple_choice" else UnpaddingCollator(collate)
    trainer = make_trainer(tmp_path, case, {"per_device_eval_batch_size": 16}, data_collator=collator)
    teachers = [Teacher(make_model(case, seed=seed).eval(), name=str(seed)) for seed in (3, 4)]
    losses = measure_teachers(teachers, trainer.get_eval_dataloader(), trainer.accelerator)
    for teacher in teachers:
        args = transformers.TrainingArguments(
            str(tmp_path), report_to="none", use_cpu=True, per_device_eval_batch_size=16, disable_tqdm=True
        )
        stock = transformers.Trainer(teacher.model, args, eval_dataset=trainer.eval_dataset, data_collator=collator)
        assert losses[teacher.name] == pytest.approx(stock.evaluate()["eval_loss"], rel=1e-4)


def test_two_processes_measure_what_one_does(two_processes, tmp_path):
    first, second = (each["teachers"] for each in two_processes)
    assert first == second == pytest.approx(teacher_measuring.run(tmp_path), rel=1e-5)


def test_data_without_labels(tmp_path):
    rows = [{"input_ids": row["input_ids"]} for row in make_rows("classification", 4)]
    trainer = make_trainer(tmp_path, eval_dataset=rows)
    teachers = [Teacher(make_model("classification"), name="teacher_0")]
    with pytest.raises(ValueError, match='eval_dataset has no labels.*teacher_mixing="weights"'):
        measure_teachers(teachers, trainer.get_eval_dataloader(), trainer.accelerator)


def test_the_better_teacher_counts_more():
    teachers = [Teacher(None, weight=weight, name=name) for name, weight in (("a", 1.0), ("b", 1.0), ("c", 2.0))]
    weights = weigh_by_validation(teachers, {"a": 0.1, "b": 0.9, "c": 0.1})
    assert weights["c"] == pytest.approx(2 * weights["a"]) and weights["a"] > weights["b"]
    assert sum(weights.values()) == pytest.approx(4.0)


def make_weighing_trainer(folder, data_seed=1, **settings):
    """Two teachers that are weighed by evaluation data of a seed, and a checkpoint after the first of two steps."""
    defaults = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1, "teacher_mixing": "validation"}
    return make_trainer(
        folder,
        settings={**defaults, **settings},
        teachers=[make_teacher(), make_teacher("Electra", seed=4)],
        eval_dataset=make_rows("classification", 16, seed=data_seed),
    )


def weights_after(trainer, **keywords):
    trainer.train(**keywords)
    return find_callback(trainer, TeacherWeights).weights


@pytest.mark.parametrize("restore", [False, True])
def test_a_resumed_training_has_the_weights_of_the_first(tmp_path, restore):
    expected = weights_after(make_weighing_trainer(tmp_path))
    resumed = make_weighing_trainer(tmp_path, 77, restore_callback_states_from_checkpoint=restore)
    assert weights_after(resumed, resume_from_checkpoint=str(tmp_path / "checkpoint-1")) == expected


def test_a_new_training_weighs_by_its_own_data(tmp_path):
    trainer = make_weighing_trainer(tmp_path)
    first = weights_after(trainer)
    trainer.eval_dataset = make_rows("classification", 16, seed=77)
    second = weights_after(trainer)
    assert second == weights_after(make_weighing_trainer(tmp_path, 77)) != first
    assert weights_after(trainer, resume_from_checkpoint=str(tmp_path / "checkpoint-1")) == second


def test_a_checkpoint_without_weights(tmp_path):
    make_weighing_trainer(tmp_path, teacher_mixing="weights").train()
    resumed = make_weighing_trainer(tmp_path)
    expected = weights_after(make_weighing_trainer(tmp_path / "other"))
    assert weights_after(resumed, resume_from_checkpoint=str(tmp_path / "checkpoint-1")) == expected


def test_weights_of_other_teachers():
    teachers = [Teacher(None, name=name) for name in WEIGHTS]
    assert TeacherWeights(WEIGHTS).of(teachers) == [0.25, 1 / 3]
    with pytest.raises(ValueError, match="weights for the teachers bert, electra, and those given are electra, bert"):
        TeacherWeights(WEIGHTS).of(teachers[::-1])
