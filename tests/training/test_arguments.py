import json

import pytest
from transformers import HfArgumentParser

from hf_elastic import ElasticTrainingArguments


def test_defaults(tmp_path):
    args = ElasticTrainingArguments(str(tmp_path))
    assert (args.sampling, args.num_random_subnets, args.inplace_distillation) == ("sandwich", 1, True)
    assert (args.task_weight, args.distillation_weight, args.hidden_weight, args.temperature) == (1.0, 1.0, 0.1, 1.0)
    assert args.subnet_weights == {}
    assert args.ddp_find_unused_parameters is False


@pytest.mark.parametrize(
    ("schedule", "end", "expected"),
    [("constant", None, [0.8, 0.8, 0.8]), ("linear", 0.4, [0.8, 0.6, 0.4]), ("cosine", 0.0, [0.8, 0.4, 0.0])],
)
def test_distillation_weight(tmp_path, schedule, end, expected):
    args = ElasticTrainingArguments(
        str(tmp_path), distillation_weight=0.8, distillation_weight_end=end, distillation_schedule=schedule
    )
    assert [args.distillation_weight_at(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx(expected)


def test_command_line(tmp_path):
    command = f"--output_dir {tmp_path} --sampling joint --no_inplace_distillation --temperature 2"
    command += " --distillation_schedule cosine --distillation_weight_end 0.5 --num-random-subnets 2"
    arguments = [*command.split(), "--subnet_weights", '{"large": 2.0, "tiny": 0.5}']
    (args,) = HfArgumentParser(ElasticTrainingArguments).parse_args_into_dataclasses(arguments)
    assert args.subnet_weights == {"large": 2.0, "tiny": 0.5}
    assert (args.sampling, args.inplace_distillation, args.temperature) == ("joint", False, 2.0)
    assert (args.distillation_weight_end, args.num_random_subnets) == (0.5, 2)


def test_help_of_every_argument():
    own = ElasticTrainingArguments.__annotations__
    assert set(own) <= set(ElasticTrainingArguments.__doc__.replace("`", " ").split())
    assert all(ElasticTrainingArguments.__dataclass_fields__[name].metadata["help"] for name in own)


def test_json_round_trip(tmp_path):
    args = ElasticTrainingArguments(str(tmp_path), subnet_weights={"small": 0.5}, report_to="none")
    values = json.loads(args.to_json_string())
    own = {name: values[name] for name in ElasticTrainingArguments.__annotations__}
    again = ElasticTrainingArguments(str(tmp_path), **own)
    assert again.subnet_weights == {"small": 0.5}


def test_tokens_are_not_shown(tmp_path):
    assert "hf_secret" not in repr(ElasticTrainingArguments(str(tmp_path), hub_token="hf_secret"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_random_subnets": 1.5}, "num_random_subnets=1.5 is no number of subnets. Give a whole number"),
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
        ({"task_weight": 0.0, "distillation_weight": 0.0, "hidden_weight": 0.0}, "All loss weights are 0"),
        ({"subnet_weights": {"tiny": -2.0}}, r"subnet_weights\['tiny'\]=-2.0"),
        ({"subnet_weights": '{"tiny": '}, "is not JSON.*Write it as"),
        ({"subnet_weights": "[1, 2]"}, r"\[1, 2\] is not a dictionary"),
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
