"""All kinds of layers and sizes are trained by the trainer, with padding and without."""

import copy

import pytest
import torch

import hf_elastic
from hf_elastic import UnpaddingCollator

from ..architectures import ARCHITECTURES, make_config
from ..conftest import randomize
from .cases import CASES, GradientRecorder, accuracy, assert_same_gradients, collate, make_trainer

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def make_classifier(architecture: str):
    config = make_config(architecture, **NO_DROPOUT)
    return randomize(hf_elastic.ElasticForSequenceClassification(config))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_sizes_are_trained_and_evaluated(architecture, tmp_path):
    model = make_classifier(architecture)
    before = copy.deepcopy(model.state_dict())
    trainer = make_trainer(
        tmp_path,
        model=model,
        settings={"max_steps": 2, "hidden_weight": 0.1, "sampling": "joint", "learning_rate": 1e-3},
        data_collator=UnpaddingCollator(collate),
        compute_metrics=accuracy,
    )
    losses = trainer.train()
    assert losses.training_loss > 0
    assert all(weight.isfinite().all() for weight in model.state_dict().values())
    unchanged = [name for name, weight in model.state_dict().items() if torch.equal(weight, before[name])]
    assert not [name for name in unchanged if not name.endswith("k_proj.bias")]  # which a softmax does not see
    metrics = trainer.evaluate()
    assert {f"eval_{size}_accuracy" for size in model.config.subnets} <= metrics.keys()


@pytest.mark.parametrize("architecture", ["sparse", "experts"])
def test_training_is_resumed(architecture, tmp_path):
    def train(output_dir, **resume):
        settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-3}
        torch.manual_seed(0)
        trainer = make_trainer(output_dir, model=make_classifier(architecture), settings=settings)
        trainer.train(**resume)
        return trainer.model.state_dict()

    unbroken = train(tmp_path)
    resumed = train(tmp_path, resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert all(torch.equal(weight, unbroken[name]) for name, weight in resumed.items())


def record_gradients(tmp_path, case="classification", settings=None, **keywords):
    """Trains for two steps of all sizes; gives the trainer and the gradients of each step."""
    recorder = GradientRecorder()
    settings = {"max_steps": 2, "hidden_weight": 0.2, "sampling": "joint"} | (settings or {})
    trainer = make_trainer(tmp_path, case, settings, callbacks=[recorder], **keywords)
    trainer.train()
    return trainer, recorder.steps


# Not of spans, whose loss takes padding for an answer unless it is taken out.
@pytest.mark.parametrize("case", [case for case in CASES if case != "question_answering"])
def test_gradients_and_evaluation_without_padding_are_the_same(case, tmp_path):
    padded, expected = record_gradients(tmp_path, case)
    unpadded, actual = record_gradients(tmp_path, case, data_collator=UnpaddingCollator(collate))
    assert_same_gradients(actual, expected)
    assert unpadded.evaluate()["eval_tiny_loss"] == pytest.approx(padded.evaluate()["eval_tiny_loss"], rel=1e-4)


@pytest.mark.parametrize("architecture", ["sparse", "shared", "window", "electra"])
def test_accumulation_does_not_change_the_gradients(architecture, tmp_path):
    steps = []
    for size, accumulation in ((8, 1), (2, 4)):
        settings = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulation}
        _, gradients = record_gradients(tmp_path, settings=settings, model=make_classifier(architecture))
        steps.append(gradients)
    assert_same_gradients(*steps)
