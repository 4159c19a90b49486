"""Statistics of layers against the same numbers from copies of weights and hidden states."""

import pytest
import torch
from transformers import TrainerCallback

from hf_elastic.training import training_statistics
from hf_elastic.training.training_statistics import norm_by_part, part_of
from tests.training.cases import GradientRecorder, collate
from tests.training.guarded import BATCH, assert_same_weights, make_batches, make_guarded_trainer, weights_of


def statistics_of(trainer) -> dict[int, dict[str, float]]:
    """What was logged as statistics, by step."""
    return {log["step"]: log for log in trainer.state.log_history if any("update_ratio" in key for key in log)}


def test_update_ratios_and_gradient_norms(tmp_path):
    recorder = GradientRecorder()
    trainer = make_guarded_trainer(
        tmp_path, make_batches(1), callbacks=[recorder], statistics_steps=1, max_grad_norm=1.0
    )
    before = weights_of(trainer)
    trainer.train()
    after, logged = weights_of(trainer), statistics_of(trainer)[1]
    for part, prefix in [
        ("layers.1.attention", "model.layers.1.attention."),
        ("layers.3.mlp_norm", "model.layers.3.mlp_norm."),
        ("embeddings", "model.embeddings."),
        ("classifier", "classifier."),
    ]:
        names = [name for name in recorder.steps[0] if name.startswith(prefix)]
        changes = torch.cat([(after[name] - before[name]).flatten() for name in names])
        weights = torch.cat([after[name].flatten() for name in names])
        gradient = torch.cat([recorder.steps[0][name].flatten() for name in names])
        assert logged[f"update_ratio/{part}"] == pytest.approx((changes.norm() / weights.norm()).item(), rel=1e-5)
        assert logged[f"gradient_norm/{part}"] == pytest.approx(gradient.norm().item(), rel=1e-5)


def test_activations_of_all_sizes(tmp_path):
    """Joint sampling of all four sizes, in two micro-batches."""
    rows = make_batches(2)
    trainer = make_guarded_trainer(tmp_path, rows, statistics_steps=1, gradient_accumulation_steps=2)
    model = trainer.elastic_model
    outputs = {layer: [] for layer in range(4)}
    with torch.no_grad():
        for name, layers in [("large", range(4)), ("base", range(4)), ("small", (0, 3)), ("tiny", (0,))]:
            assert model.config.subnets[name].layers in (None, tuple(layers))
            for part in (rows[:BATCH], rows[BATCH:]):
                states = model(**collate(part), subnet=name, output_hidden_states=True).hidden_states
                for layer, state in zip(layers, states[1:], strict=True):
                    outputs[layer].append(state.flatten())
    trainer.train()
    logged = statistics_of(trainer)[1]
    for layer, states in outputs.items():
        values = torch.cat(states)
        assert logged[f"activation_mean/layers.{layer}"] == pytest.approx(values.mean().item(), rel=1e-4, abs=1e-6)
        assert logged[f"activation_std/layers.{layer}"] == pytest.approx(values.std(unbiased=False).item(), rel=1e-4)
        assert logged[f"activation_max/layers.{layer}"] == pytest.approx(values.abs().max().item(), rel=1e-5)


def test_layers_that_no_size_of_the_step_runs_have_no_activations(tmp_path):
    trainer = make_guarded_trainer(tmp_path, make_batches(12), statistics_steps=1, sampling="one_per_step")
    drawn = [trainer.sampler.draw(step) for step in range(12)]
    trainer.train()
    depths = {"large": {0, 1, 2, 3}, "base": {0, 1, 2, 3}, "small": {0, 3}, "tiny": {0}}
    assert {name for names in drawn for name in names} == set(depths)
    for step, (name,) in enumerate(drawn, start=1):
        logged = statistics_of(trainer)[step]
        layers = {int(key.rsplit(".", 1)[1]) for key in logged if key.startswith("activation_mean/")}
        assert layers == depths[name]
        assert logged["update_ratio/layers.2.mlp"] >= 0


def test_only_steps_that_are_due_are_watched(tmp_path):
    def is_watched(model) -> bool:  # transformers has hooks of its own
        hooks = [hook for module in model.modules() for hook in module._forward_hooks.values()]
        return any(hook.__module__ == training_statistics.__name__ for hook in hooks)

    class Watch(TrainerCallback):
        def __init__(self) -> None:
            self.hooked = []

        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            self.hooked.append(is_watched(model))

        def on_evaluate(self, args, state, control, model=None, **kwargs):
            assert not is_watched(model)

    watch = Watch()
    settings = {"eval_strategy": "steps", "eval_steps": 1}
    trainer = make_guarded_trainer(tmp_path, make_batches(7), callbacks=[watch], statistics_steps=3, **settings)
    trainer.train()
    assert watch.hooked == [False, False, True, False, False, True, False]
    assert list(statistics_of(trainer)) == [3, 6]
    assert {log["step"] for log in trainer.state.log_history if "loss" in log} == set(range(1, 8))


@pytest.mark.parametrize("settings", [{"activation_checkpointing": True}, {"gradient_accumulation_steps": 2}])
def test_statistics_change_nothing(tmp_path, settings):
    watched = make_guarded_trainer(tmp_path, make_batches(4), statistics_steps=1, **settings)
    plain = make_guarded_trainer(tmp_path, make_batches(4), **settings)
    watched.train()
    plain.train()
    assert_same_weights(weights_of(watched), weights_of(plain))


def test_activations_do_not_depend_on_activation_checkpointing(tmp_path):
    logged = []
    for checkpointing in (False, True):
        trainer = make_guarded_trainer(
            tmp_path, make_batches(1), statistics_steps=1, activation_checkpointing=checkpointing
        )
        trainer.train()
        logged.append({key: value for key, value in statistics_of(trainer)[1].items() if "activation" in key})
    assert logged[0] == pytest.approx(logged[1], rel=1e-5, abs=1e-7)


def test_a_step_that_is_left_out_changes_nothing(tmp_path):
    trainer = make_guarded_trainer(tmp_path, make_batches(2, bad=(1,)), statistics_steps=1, on_bad_step="skip")
    trainer.train()
    logged = statistics_of(trainer)[2]
    assert all(value == 0 for key, value in logged.items() if key.startswith("update_ratio/"))
    assert not any(key.startswith("gradient_norm/") for key in logged)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.layers.3.attention.q_proj.weight", "layers.3.attention"),
        ("model.layers.12.mlp_norm.bias", "layers.12.mlp_norm"),
        ("base_model.model.model.layers.0.attention.q_proj.lora_A.default.weight", "layers.0.attention"),
        ("module._orig_mod.model.embeddings.norm.weight", "embeddings"),
        ("classifier.weight", "classifier"),
        ("lm_head.decoder.bias", "lm_head"),
        ("weight", "weight"),
    ],
)
def test_names_of_parts_are_short(name, part):
    assert part_of(name) == part


def test_norms_of_half_precision_do_not_overflow():
    norms = norm_by_part({"classifier.weight": torch.full((4,), 60000.0, dtype=torch.float16)})
    assert norms["classifier"].item() == pytest.approx(120000.0, rel=1e-3)
