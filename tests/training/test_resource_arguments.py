from dataclasses import replace

import pytest
from transformers import HfArgumentParser

from hf_elastic import ElasticTrainingArguments


def test_defaults_change_nothing(tmp_path):
    args = ElasticTrainingArguments(str(tmp_path))
    assert args.output_dir == str(tmp_path)
    assert (args.micro_batch_size, args.adapt_micro_batch_size, args.memory_threshold) == (None, False, 0.8)
    assert (args.max_minutes, args.max_examples, args.adapt_num_random_subnets) == (None, None, False)
    assert (args.early_stopping_min_gain, args.early_stopping_patience) == (None, 3)


def test_command_line(tmp_path):
    command = f"--output_dir {tmp_path} --micro_batch_size 4 --adapt_micro_batch_size --memory_threshold 0.5"
    command += " --max_minutes 1.5 --max_examples 100 --adapt_num_random_subnets --early_stopping_min_gain 0.1"
    command += " --early_stopping_patience 2 --eval_strategy epoch --metric_for_best_model loss"
    (args,) = HfArgumentParser(ElasticTrainingArguments).parse_args_into_dataclasses(command.split())
    assert (args.micro_batch_size, args.adapt_micro_batch_size, args.memory_threshold) == (4, True, 0.5)
    assert (args.max_minutes, args.max_examples, args.adapt_num_random_subnets) == (1.5, 100, True)
    assert (args.early_stopping_min_gain, args.early_stopping_patience) == (0.1, 2)


GROWING = {"adapt_micro_batch_size": True, "keep_effective_batch": False, "max_examples": 100}
STOPPING = {"early_stopping_min_gain": 0.1, "eval_strategy": "epoch", "metric_for_best_model": "loss"}


def test_steps_of_growing_batches_are_at_most_those_of_the_first_size(tmp_path):
    args = ElasticTrainingArguments(str(tmp_path), per_device_train_batch_size=8, use_cpu=True, **GROWING)
    assert args.most_steps() == 13
    assert replace(args, per_device_train_batch_size=4).most_steps() == 25


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"micro_batch_size": 0}, "micro_batch_size=0 is not possible"),
        ({"micro_batch_size": 2.0}, "micro_batch_size=2.0 is not possible"),
        ({"early_stopping_patience": None}, "early_stopping_patience=None is not possible"),
        ({"micro_batch_size": 9}, "micro_batch_size=9 is more than per_device_train_batch_size=8.*at most 8"),
        ({"max_examples": -1}, "max_examples=-1 is not possible. Give a whole number, 1 or more"),
        ({"memory_threshold": 0.0}, "memory_threshold=0.0 is no share"),
        ({"memory_threshold": 1.1}, "memory_threshold=1.1 is no share"),
        ({"memory_threshold": float("nan")}, "memory_threshold=nan is not finite"),
        ({"max_minutes": 0}, "max_minutes=0 leaves no time"),
        (
            {"adapt_micro_batch_size": True, "gradient_accumulation_steps": 4},
            "gradient_accumulation_steps=4.*per_device_train_batch_size=32.*micro_batch_size=8",
        ),
        ({"adapt_micro_batch_size": True, "auto_find_batch_size": True}, "Leave out auto_find_batch_size"),
        ({"keep_effective_batch": False, "max_examples": 9}, "Give adapt_micro_batch_size=True and max_examples"),
        ({**GROWING, "max_examples": None}, "Give adapt_micro_batch_size=True and max_examples"),
        ({**GROWING, "save_strategy": "epoch"}, "no ends of epochs.*'steps'"),
        ({**GROWING, "train_sampling_strategy": "sequential"}, "no train_sampling_strategy='sequential'"),
        ({**GROWING, "max_steps": 50}, "max_steps=50 .*max_examples=100 ends the training. Leave max_steps out"),
        ({**GROWING, "eval_strategy": "steps", "eval_steps": 0.25}, "eval_steps=0.25 is a share.*at most 13"),
        ({**GROWING, "save_steps": 0.5}, "save_steps=0.5 is a share of all steps"),
        ({**GROWING, "logging_steps": 0.1}, "logging_steps=0.1 is a share of all steps"),
        ({"adapt_num_random_subnets": True}, "Give max_minutes"),
        ({"adapt_num_random_subnets": True, "max_minutes": 1, "sampling": "joint"}, "sampling='joint'.*'sandwich'"),
        ({**STOPPING, "early_stopping_min_gain": -0.1}, "early_stopping_min_gain=-0.1 is negative"),
        ({**STOPPING, "early_stopping_patience": 0}, "early_stopping_patience=0 is not possible"),
        ({**STOPPING, "eval_strategy": "no"}, "needs evaluations. Give eval_strategy"),
        ({**STOPPING, "metric_for_best_model": None}, "needs a metric. Give metric_for_best_model"),
    ],
)
def test_bad_values_are_named(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        ElasticTrainingArguments(str(tmp_path), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_threshold": "0.8"}, "memory_threshold='0.8' is a str. Give a number without quotes"),
        ({"max_minutes": "5"}, "max_minutes='5' is a str"),
    ],
)
def test_values_of_another_kind_are_named(tmp_path, settings, message):
    with pytest.raises(TypeError, match=message):
        ElasticTrainingArguments(str(tmp_path), **settings)
