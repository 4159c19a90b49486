import importlib
import json
import re

import pytest
import torch
from transformers import HfArgumentParser

from hf_elastic import ElasticTrainingArguments


def test_defaults(tmp_path):
    args = ElasticTrainingArguments(str(tmp_path))
    assert (args.sampling, args.num_random_subnets, args.inplace_distillation) == ("sandwich", 1, True)
    assert (args.task_weight, args.distillation_weight, args.hidden_weight, args.temperature) == (1.0, 1.0, 0.1, 1.0)
    assert args.subnet_weights == {}
    assert args.ddp_find_unused_parameters is False
    assert args.dataloader_pin_memory is torch.accelerator.is_available()


@pytest.mark.parametrize(
    ("schedule", "end", "expected"),
    [("constant", None, [0.8, 0.8, 0.8]), ("linear", 0.4, [0.8, 0.6, 0.4]), ("cosine", 0.0, [0.8, 0.4, 0.0])],
)
def test_distillation_weight(tmp_path, schedule, end, expected):
    args = ElasticTrainingArguments(
        str(tmp_path), distillation_weight=0.8, distillation_weight_end=end, distillation_schedule=schedule
    )
    weights = [args.loss_weights_at(progress)["distillation"] for progress in (0.0, 0.5, 1.0)]
    assert weights == pytest.approx(expected)


def test_the_weight_of_the_task_follows_the_same_schedule(tmp_path):
    settings = {"task_weight": 0.2, "task_weight_end": 0.7, "distillation_weight": 0.8, "distillation_weight_end": 0.3}
    args = ElasticTrainingArguments(str(tmp_path), distillation_schedule="linear", hidden_weight=0.0, **settings)
    assert args.loss_weights_at(0.5) == pytest.approx({"task": 0.45, "distillation": 0.55})


@pytest.mark.parametrize(
    ("schedule", "end", "expected"),
    [("constant", None, [4, 4, 4]), ("linear", 1.0, [4, 2.5, 1]), ("cosine", 1, [4, 2.5, 1])],
)
def test_temperature(tmp_path, schedule, end, expected):
    args = ElasticTrainingArguments(str(tmp_path), temperature=4, temperature_end=end, temperature_schedule=schedule)
    assert [args.temperature_at(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx(expected)


@pytest.mark.parametrize("given", ['{"6": 12, "1": 2}', {1: 2, 6: 12}])
def test_layer_map(tmp_path, given):
    args = ElasticTrainingArguments(str(tmp_path), layer_map=given)
    assert args.layer_map == {1: 2, 6: 12}


def test_command_line(tmp_path):
    command = f"--output_dir {tmp_path} --sampling joint --no_inplace_distillation --temperature 2"
    command += " --distillation_schedule cosine --distillation_weight_end 0.5 --num-random-subnets 2"
    arguments = [*command.split(), "--subnet_weights", '{"large": 2.0, "tiny": 0.5}']
    (args,) = HfArgumentParser(ElasticTrainingArguments).parse_args_into_dataclasses(arguments)
    assert args.subnet_weights == {"large": 2.0, "tiny": 0.5}
    assert (args.sampling, args.inplace_distillation, args.temperature) == ("joint", False, 2.0)
    assert (args.distillation_weight_end, args.num_random_subnets) == (0.5, 2)


def own_arguments() -> dict[str, type]:
    """The arguments that the parent has not, with the group that they belong to."""
    groups = [group for group in ElasticTrainingArguments.__mro__ if group.__module__.startswith("hf_elastic")]
    return {name: group for group in groups for name in group.__dict__.get("__annotations__", {})}


@pytest.mark.parametrize(("name", "group"), own_arguments().items())
def test_help_of_every_argument(name, group):
    assert f"\n        {name} (`" in group.__doc__
    assert ElasticTrainingArguments.__dataclass_fields__[name].metadata["help"]


def test_json_round_trip(tmp_path):
    settings = {"subnet_weights": {"small": 0.5}, "layer_map": {1: 2}, "subnet_max_lengths": {"small": 64}}
    args = ElasticTrainingArguments(str(tmp_path), report_to="none", **settings)
    values = json.loads(args.to_json_string())
    own = {name: values[name] for name in own_arguments()}
    again = ElasticTrainingArguments(str(tmp_path), **own)
    assert {name: getattr(again, name) for name in settings} == settings


def test_tokens_are_not_shown(tmp_path):
    assert "hf_secret" not in repr(ElasticTrainingArguments(str(tmp_path), hub_token="hf_secret"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_random_subnets": 1.5}, "num_random_subnets=1.5 is not possible. Give a whole number, 0 or more"),
        ({"num_random_subnets": True}, "num_random_subnets=True"),
        ({"temperature": float("nan")}, "temperature=nan is not finite"),
        ({"distillation_weight": float("inf")}, "distillation_weight=inf is not finite"),
        ({"subnet_weights": {"tiny": float("nan")}}, r"subnet_weights\['tiny'\]=nan is not finite"),
        ({"sampling": "all"}, "sampling='all'.*joint, sandwich, one_per_step"),
        ({"distillation_schedule": "step"}, "distillation_schedule='step'.*constant, linear, cosine"),
        ({"num_random_subnets": -1}, "num_random_subnets=-1"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"task_weight": -1.0}, "task_weight=-1.0.*0 to switch"),
        ({"hidden_weight": -0.1}, "hidden_weight=-0.1"),
        ({"hidden_weight": float("nan")}, "hidden_weight=nan"),
        ({"distillation_weight_end": -0.5, "distillation_schedule": "linear"}, "distillation_weight_end=-0.5"),
        (
            {"task_weight": 0.0, "distillation_weight": 0.0, "hidden_weight": 0.0},
            "All loss weights are 0 at the start",
        ),
        (
            {
                "task_weight_end": 0.0,
                "distillation_weight_end": 0.0,
                "hidden_weight": 0.0,
                "distillation_schedule": "linear",
            },
            "All loss weights are 0 at the end",
        ),
        ({"task_weight_end": 0.5}, "'constant'.*task_weight_end=0.5"),
        ({"temperature_end": 1.0}, "temperature_schedule='constant'.*temperature_end=1.0"),
        ({"temperature_end": 0.0, "temperature_schedule": "linear"}, "temperature_end=0.0 is not positive"),
        ({"temperature_schedule": "linear"}, "temperature_schedule='linear'.*Give an end"),
        ({"output_loss": "l1"}, "output_loss='l1'.*kl, cross_entropy, mse"),
        ({"hidden_loss": "l1"}, "hidden_loss='l1'.*mse, cosine, contrastive"),
        ({"layer_map": "first"}, '\'first\'.*"even", "last"'),
        ({"layer_map": {}}, "empty"),
        ({"relation_weight": -1.0}, "relation_weight=-1.0"),
        ({"relation_heads": 0}, "relation_heads=0.*1 or more"),
        ({"detachment_probability": 1.0}, r"detachment_probability=1.0 must lie in \[0, 1\)"),
        ({"detachment_interval": 0}, "detachment_interval=0"),
        ({"subnet_weighting": "loss"}, "subnet_weighting='loss'.*uniform, toward_largest, by_loss"),
        ({"subnet_max_lengths": {"tiny": 1}}, r"subnet_max_lengths\['tiny'\]=1"),
        ({"subnet_max_lengths": "64"}, "subnet_max_lengths='64' is not a dictionary"),
        ({"core_gradient_scale": -0.5}, "core_gradient_scale=-0.5"),
        ({"gradient_conflicts": "project"}, "gradient_conflicts='project'.*add, pcgrad, upgrad"),
        ({"layer_drop": 1.0}, "layer_drop=1.0"),
        ({"group_penalty": -1}, "group_penalty=-1"),
        ({"subnet_weights": {"tiny": -2.0}}, r"subnet_weights\['tiny'\]=-2.0"),
        ({"subnet_weights": '{"tiny": '}, "is not JSON.*Write it as"),
        ({"subnet_weights": "[1, 2]"}, r"'\[1, 2\]' is not a dictionary"),
        ({"distillation_schedule": "linear"}, "'linear'.*Give an end"),
        ({"distillation_weight_end": 0.5}, "'constant'.*distillation_weight_end=0.5"),
        ({"ddp_find_unused_parameters": True}, "ddp_find_unused_parameters=True"),
    ],
)
def test_bad_values_are_named(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        ElasticTrainingArguments(str(tmp_path), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": "2"}, "temperature='2' is a str. Give a number without quotes"),
        ({"task_weight": None}, "task_weight=None is a NoneType. Give a number"),
        ({"hidden_weight": True}, "hidden_weight=True is a bool"),
        ({"distillation_weight_end": "0", "distillation_schedule": "linear"}, "distillation_weight_end='0'"),
        ({"subnet_weights": {"tiny": "x"}}, r"subnet_weights\['tiny'\]='x' is a str. Give a number"),
    ],
)
def test_values_of_another_kind_are_named(tmp_path, settings, message):
    with pytest.raises(TypeError, match=message):
        ElasticTrainingArguments(str(tmp_path), **settings)


def test_the_documentation_says_where_each_argument_is_described():
    paths = re.findall(r"- `([\w.]+)\.(\w+)`:", ElasticTrainingArguments.__doc__)
    groups = [getattr(importlib.import_module(module), name) for module, name in paths]
    assert groups == [
        base for base in ElasticTrainingArguments.__mro__[1:] if base.__module__.startswith("hf_elastic")
    ]
    for group in groups:
        for name in vars(group)["__annotations__"]:
            assert f"        {name} (`" in group.__doc__
