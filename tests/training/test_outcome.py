"""What became of a training: what was done, not what was asked for."""

import json

from hf_elastic.training.outcome import TrainingOutcome
from hf_elastic.training.teachers import Teacher

from .cases import NAMES, make_model, make_trainer

SETTINGS = {"per_device_train_batch_size": 8, "num_train_epochs": 2}


def test_a_training_that_came_to_its_end(tmp_path):
    trainer = make_trainer(tmp_path, settings=SETTINGS)
    trainer.train()
    outcome = TrainingOutcome.of(trainer)
    assert outcome == TrainingOutcome(16, 2.0, None, 1, tuple(NAMES), ())
    assert outcome.described() == {"steps done": 16, "epochs done": 2.0, "processes": 1}


def test_a_training_that_was_ended_with_teachers(tmp_path):
    teachers = [make_model("classification", seed=3), Teacher(make_model("classification", seed=4), 0.5, name="old")]
    trainer = make_trainer(tmp_path, settings={**SETTINGS, "max_examples": 28}, teachers=teachers)
    trainer.train()
    outcome = TrainingOutcome.of(trainer)
    assert (outcome.steps, outcome.epochs) == (4, 0.5)
    assert "max_examples=28 ended the training at step 4 of 16" in outcome.ending
    kind = "ElasticForSequenceClassification"
    assert outcome.teachers == (f"teacher_0 ({kind}, weight 1)", f"old ({kind}, weight 0.5)")
    assert outcome.described()["ended early"] == outcome.ending
    assert json.loads(json.dumps(outcome.to_dict()))["sizes"] == NAMES


def test_before_the_first_training_nothing_was_done(tmp_path):
    outcome = TrainingOutcome.of(make_trainer(tmp_path))
    assert (outcome.steps, outcome.epochs, outcome.ending) == (0, 0.0, None)
