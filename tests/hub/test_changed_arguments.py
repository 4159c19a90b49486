"""What a card lists of the arguments: what was given, not what a training makes of the defaults."""

from hf_elastic import ElasticTrainingArguments
from hf_elastic.hub.changed_arguments import changed_arguments
from hf_elastic.training.provenance import public_arguments


def changed(tmp_path, **settings):
    return changed_arguments(public_arguments(ElasticTrainingArguments(str(tmp_path), **settings)))


def test_by_default_nothing_is_changed(tmp_path):
    assert changed(tmp_path) == {}


def test_what_was_given_is_changed(tmp_path):
    given = {"seed": 0, "data_seed": 0, "subnet_weights": {"tiny": 0.5}, "eval_strategy": "steps", "bf16": True}
    given |= {"accelerator_config": {"even_batches": False}}
    found = changed(tmp_path, **given, use_cpu=True)
    assert found.pop("accelerator_config")["even_batches"] is False
    del given["accelerator_config"]
    assert found.items() >= given.items()
    assert found.keys() - given.keys() <= {"use_cpu", "eval_steps", "do_eval"}  # those that follow from others


def test_what_is_unknown_is_changed():
    assert changed_arguments({"former": 1, "seed": 42}) == {"former": 1}
