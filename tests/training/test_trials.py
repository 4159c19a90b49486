"""A trial training takes back what the weights alone do not show; the rest is tested with what makes trials."""

import pytest
import torch

from hf_elastic import ElasticConfig, ElasticForSequenceClassification
from hf_elastic.training.trials import make_trial, restored
from tests.conftest import TINY
from tests.training.cases import make_trainer


def make_teacher():
    """With another hidden size, so that the trainer learns projections to it."""
    config = ElasticConfig(**{**TINY, "hidden_size": 48}, num_labels=3)
    return ElasticForSequenceClassification(config)


def test_feature_projections_are_trained_in_a_trial_and_left_alone(tmp_path):
    trainer = make_trainer(tmp_path, settings={"hidden_weight": 1.0}, teachers=[make_teacher()])
    own = trainer.projection_training.projections.state_dict()
    before = {name: value.clone() for name, value in own.items()}
    with restored(trainer):
        trial = make_trial(trainer, {"max_steps": 2, "learning_rate": 0.1})
        trial.train()
        trained = trial.projection_training.projections.state_dict()
        assert not all(torch.equal(trained[name], before[name]) for name in before)
    assert all(torch.equal(own[name], before[name]) for name in before)
    assert trainer.objective.distiller is not trial.objective.distiller


def test_hooks_gradients_and_configuration_come_back_after_an_error(tmp_path):
    trainer = make_trainer(tmp_path)
    model, weight = trainer.model, trainer.model.classifier.weight
    gradient = weight.grad = torch.ones_like(weight)
    with pytest.raises(RuntimeError, match="in the middle"), restored(trainer):
        assert weight.grad is None
        model.register_forward_hook(lambda *arguments: None)
        model.config.pad_token_id = 77
        model.activation_checkpointing_enable()
        model(input_ids=torch.tensor([[5, 6]]), labels=torch.tensor([1])).loss.backward()
        raise RuntimeError("in the middle")
    assert weight.grad is gradient
    assert torch.equal(gradient, torch.ones_like(weight))
    assert not model._forward_hooks
    assert model.config.pad_token_id != 77
    assert not model.is_activation_checkpointing
