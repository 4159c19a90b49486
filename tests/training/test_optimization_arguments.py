"""Settings of the optimization that cannot be are refused, with the value and what to give instead."""

import math

import pytest
from transformers import HfArgumentParser

from hf_elastic import ElasticTrainingArguments
from hf_elastic.training.optimization_arguments import PRETRAINING_SETTINGS, OptimizationArguments

from .cases import make_arguments, make_trainer


def test_the_defaults_fit():
    OptimizationArguments().check_optimization()


@pytest.mark.parametrize(
    "values",
    [
        {"layer_lr_decay": 0.8, "head_lr_multiplier": 5},
        {"adaptive_clipping": 0.01},
        {"percentile_clipping": 100, "percentile_window": 1},
        {"scale_lr_with_batch": True, "base_batch_size": 32},
        {"weight_averaging": "swa", "swa_start": 0},
    ],
)
def test_settings_that_fit(values):
    OptimizationArguments(**values).check_optimization()


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"layer_lr_decay": 0.0}, ValueError, "layer_lr_decay=0.0 is out of range.*at most 1"),
        ({"layer_lr_decay": 1.1}, ValueError, "layer_lr_decay=1.1 is out of range"),
        ({"head_lr_multiplier": 0}, ValueError, "head_lr_multiplier=0 is out of range.*freeze"),
        ({"head_lr_multiplier": "5"}, TypeError, "head_lr_multiplier='5' is a str"),
        ({"adaptive_clipping": -0.1}, ValueError, "adaptive_clipping=-0.1 is out of range"),
        ({"adaptive_clipping": math.nan}, ValueError, "adaptive_clipping=nan is not finite"),
        ({"percentile_clipping": 101}, ValueError, "percentile_clipping=101 is out of range"),
        ({"percentile_window": 0}, ValueError, "percentile_window=0 is not possible"),
        (
            {"percentile_window": 1.5},
            ValueError,
            "percentile_window=1.5 is not possible.*1 or more",
        ),
        ({"adaptive_clipping": 0.01, "percentile_clipping": 10}, ValueError, "two ways to limit gradients"),
        ({"scale_lr_with_batch": True}, ValueError, "base_batch_size=None. Give both or none"),
        ({"base_batch_size": 32}, ValueError, "scale_lr_with_batch=False does not go together"),
        ({"scale_lr_with_batch": True, "base_batch_size": 0}, ValueError, "base_batch_size=0 is not possible"),
        ({"weight_averaging": "mean"}, ValueError, "weight_averaging='mean' is unknown. Choose one of none, ema, swa"),
        ({"ema_decay": 1.0}, ValueError, "ema_decay=1.0 is out of range"),
        ({"swa_start": 1.0}, ValueError, "swa_start=1.0 is out of range"),
    ],
)
def test_settings_that_cannot_be(values, error, message):
    with pytest.raises(error, match=message):
        OptimizationArguments(**values).check_optimization()


@pytest.mark.parametrize(
    ("name", "value"), [("adaptive_clipping", 0.01), ("percentile_clipping", 10), ("weight_averaging", "ema")]
)
def test_what_deepspeed_does_not_allow(name, value):
    OptimizationArguments(layer_lr_decay=0.9).check_deepspeed()
    with pytest.raises(ValueError, match=f"{name}={value!r} does not work with DeepSpeed"):
        OptimizationArguments(**{name: value}).check_deepspeed()


@pytest.mark.parametrize(("batch_size", "multiplier"), [(32, 1.0), (128, 2.0), (8, 0.5)])
def test_the_learning_rate_follows_the_root_of_the_batch_size(batch_size, multiplier):
    args = OptimizationArguments(scale_lr_with_batch=True, base_batch_size=32)
    assert args.batch_lr_multiplier(batch_size) == multiplier
    assert OptimizationArguments().batch_lr_multiplier(batch_size) == 1.0


def test_command_line(tmp_path):
    command = f"--output_dir {tmp_path} --layer_lr_decay 0.9 --scale_lr_with_batch --base_batch_size 8"
    (args,) = HfArgumentParser(ElasticTrainingArguments).parse_args_into_dataclasses(command.split())
    assert (args.layer_lr_decay, args.scale_lr_with_batch, args.base_batch_size) == (0.9, True, 8)


def test_pretraining_settings_reach_optimizer_and_schedule(tmp_path):
    settings = {**PRETRAINING_SETTINGS, "max_steps": 40, "sampling": "one_per_step"}
    trainer = make_trainer(tmp_path, settings={**settings, "learning_rate": 1e-3})
    trainer.train()
    group = trainer.optimizer.param_groups[0]
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-6, 0.01)
    rates = [log["learning_rate"] for log in trainer.state.log_history if "learning_rate" in log]
    expected = [step / 2 if step < 2 else (1 + math.cos(math.pi * (step - 2) / 38)) / 2 for step in range(40)]
    assert rates == pytest.approx([1e-3 * share for share in expected])
    assert make_arguments(tmp_path, **PRETRAINING_SETTINGS).learning_rate == 5e-4
