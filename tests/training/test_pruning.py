"""Pruning to a target in rounds, on a model that is large enough for whole heads and neurons in thirty-twos."""

import pytest
import torch

import hf_elastic
from hf_elastic import ElasticConfig, extract, prune
from hf_elastic.compression.cost import count_parameters
from tests.conftest import TINY, randomize
from tests.training.cases import collate, make_arguments, make_rows

ROWS = make_rows("classification", 16)


def make_model(**settings):
    sizes = {**TINY, "num_hidden_layers": 2, "intermediate_size": 1024, "num_attention_heads": 8, "head_dim": 8}
    return randomize(
        hf_elastic.ElasticForSequenceClassification(ElasticConfig(**{**sizes, "num_labels": 3, **settings}))
    )


def run(tmp_path, model, target, **keywords):
    settings = {
        "group_penalty": 0.01,
        "num_train_epochs": 1,
        "per_device_train_batch_size": 8,
        **keywords.pop("settings", {}),
    }
    args = make_arguments(tmp_path / "out", **settings)
    return prune(model, args, ROWS, target, data_collator=collate, rank_examples=16, **keywords)


def test_the_target_is_reached_a_third_at_a_time(tmp_path):
    model = make_model()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    pruned = run(tmp_path, model, target=0.3)
    counts = pruned.encoder_parameters
    assert counts[0] == count_parameters(model).encoder and counts[-1] == count_parameters(pruned.model).encoder
    assert 0.25 * counts[0] < counts[-1] <= 0.3 * counts[0]
    # Whole heads and neurons in thirty-twos: a little more than a third may go.
    assert all(0.64 <= after / before <= 1 for before, after in zip(counts, counts[1:], strict=False))
    assert len(pruned.subnets) == 3  # two thirds, a bit under a half, 0.3
    assert pruned.model.config.subnets == {}
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    batch = collate(ROWS)
    assert torch.isfinite(pruned.model(**batch).loss)


def test_layers_keep_what_is_important_in_them(tmp_path):
    model = make_model()
    with torch.no_grad():  # the second layer's network adds next to nothing
        model.base_model.layers[1].mlp.down_proj.weight *= 1e-3
        model.base_model.layers[1].mlp.down_proj.bias *= 1e-3
    pruned = run(tmp_path, model, target=0.7, settings={"learning_rate": 1e-6})
    first, second = pruned.model.config.layer_sizes()
    assert first.intermediate_size == 1024  # all that is left out is of the other one
    assert second.intermediate_size < 512


def test_the_model_before_can_teach(tmp_path):
    model = make_model()
    pruned = run(tmp_path, model, target=0.8, teachers=[extract(model, None)], recovery_epochs=0)
    assert count_parameters(pruned.model).encoder < count_parameters(model).encoder


def test_bad_input_is_named_before_any_training(tmp_path):
    model = make_model()
    for target in (0.0, 1.0, 2, "half"):
        with pytest.raises(ValueError, match=f"target={target!r} must lie in"):
            run(tmp_path, model, target)
    with pytest.raises(ValueError, match=r"target=0.001: with one head and 32 neurons in each layer, 0\.\d+ of"):
        run(tmp_path, model, 0.001)
    with pytest.raises(ValueError, match="group_penalty=0: pruning needs a group lasso"):
        run(tmp_path, model, 0.5, settings={"group_penalty": 0.0})
    with pytest.raises(ValueError, match="recovery_epochs=-1"):
        run(tmp_path, model, 0.5, recovery_epochs=-1)
    with pytest.raises(TypeError, match="not an elastic model"):
        run(tmp_path, torch.nn.Linear(2, 2), 0.5)
    assert not (tmp_path / "out").exists()
