"""Recipes: those that ship, and each way in which one can be wrong."""

import dataclasses
import re

import pytest
import yaml

from hf_elastic import ElasticConfig, ElasticForSequenceClassification, ElasticTrainingArguments, SubnetConfig
from hf_elastic.compression.cost import count_parameters
from hf_elastic.recipes import DEFAULT_SUBNETS, Recipe, TrainingSettings, subnet_configs
from hf_elastic.resources import hub_configs_folder

SMALLEST = {"name": "news", "source": "org/bert"}


@pytest.mark.parametrize("path", sorted(hub_configs_folder().glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_is_read_by_name_and_by_path(path):
    recipe = Recipe.load(path.stem)
    assert recipe == Recipe.load(path)
    assert recipe.name == path.stem
    assert set(recipe.repositories) == {*recipe.subnets, "supernet"}


def test_the_plain_values_give_the_same_recipe():
    recipe = Recipe.load("minilm-bbc-news")
    assert Recipe.from_dict(yaml.safe_load(yaml.safe_dump(recipe.to_dict()))) == recipe


def test_a_fast_trial_changes_only_what_the_recipe_says():
    recipe = Recipe.from_dict({**SMALLEST, "training": {"batch_size": 8}, "fast": {"train_rows": 100}})
    assert recipe.settings() == TrainingSettings(batch_size=8)
    assert recipe.settings(fast=True) == TrainingSettings(batch_size=8, train_rows=100)


@pytest.mark.parametrize("sizes", [DEFAULT_SUBNETS, Recipe.load("minilm-bbc-news").subnets], ids=["default", "demo"])
def test_the_largest_size_is_the_full_model_and_the_smallest_at_most_a_quarter_of_its_encoder(sizes):
    config = ElasticConfig(num_hidden_layers=6, hidden_size=384, num_attention_heads=12, intermediate_size=1536)
    config.subnets = subnet_configs(config, sizes)
    model = ElasticForSequenceClassification(config)
    parameters = [count_parameters(model, size).encoder for size in sizes]
    assert config.subnets["large"] == SubnetConfig()
    assert parameters == sorted(parameters, reverse=True)
    assert parameters[-1] <= 0.25 * parameters[0]


def test_settings_become_arguments_of_the_trainer(tmp_path):
    settings = TrainingSettings(batch_size=8, cotrain_epochs=3, learning_rate=2e-5, sampling="joint", seed=7)
    args = settings.arguments(tmp_path, logging_steps=5)
    assert (args.per_device_train_batch_size, args.num_train_epochs, args.learning_rate) == (8, 3, 2e-5)
    assert (args.sampling, args.seed, args.logging_steps) == ("joint", 7, 5)


def test_other_training_arguments(tmp_path):
    settings = TrainingSettings(other_arguments={"relation_weight": 0.5, "max_grad_norm": 0.5})
    args = settings.arguments(tmp_path)
    assert (args.relation_weight, args.max_grad_norm) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"relation_wieght": 1.0}, "'relation_wieght' is no training argument. Did you mean relation_weight"),
        ({"smapling": "joint"}, "'smapling' is no training argument. Did you mean sampling"),
        ({"output_dir": "out"}, "'output_dir' is no setting. The folder is given as -o"),
        ({"temperature": 2.0}, "'temperature' is a setting of its own. Give it beside other_arguments"),
        ({"num_train_epochs": 2.0}, "'num_train_epochs' is the setting 'cotrain_epochs'"),
    ],
)
def test_arguments_that_are_none(arguments, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(other_arguments=arguments)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("keep_effective_batch", "False", "expected bool, got str (true and false stand without quotes)."),
        ("log_resources", "false", "expected bool, got str (true and false stand without quotes)."),
        ("bf16", 1, "expected bool, got int."),
        ("max_steps", "ten", "expected int, got str."),
        ("max_steps", 1.5, "expected int, got float."),
        ("weight_decay", "1e-4", "expected float, got str (YAML needs a dot in 1.0e-4, and no quotes)."),
        ("data_seed", "x", "expected int or None, got str."),
        (
            "eval_strategy",
            False,
            "expected str, got bool (YAML reads no, off, yes and on as booleans, unless they stand in quotes).",
        ),
        ("label_names", "labels", "expected list or None, got str."),
        ("lr_scheduler_kwargs", 3, "expected dict or str or None, got int."),
    ],
)
def test_arguments_of_another_type(name, value, message):
    whole = re.escape(f"other_arguments: {name}={value!r}: {message}")
    with pytest.raises(TypeError, match=whole):
        TrainingSettings(other_arguments={name: value})
    with pytest.raises(TypeError, match=whole):
        Recipe.from_dict({**SMALLEST, "fast": {"other_arguments": {name: value}}})


def test_every_training_argument_may_have_its_default(tmp_path):
    own = {field.name for field in dataclasses.fields(TrainingSettings)}
    without = {*own, "output_dir", "num_train_epochs", "per_device_train_batch_size"}
    arguments = {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(ElasticTrainingArguments)
        if field.name not in without
    }
    args = TrainingSettings(other_arguments=arguments).arguments(tmp_path)
    assert args.logging_steps == 500
    TrainingSettings(other_arguments={"fsdp": True, "max_minutes": 5, "layer_map": {"1": 2}, "report_to": ["none"]})


def test_arguments_that_are_settings_of_their_own_become_those():
    settings = TrainingSettings(other_arguments={"bf16": True, "relation_weight": 0.5})
    given = {"sampling": "joint", "subnet_weights": {"small": 2.0}, "relation_weight": 1.0}
    assert settings.with_arguments(given) == TrainingSettings(
        sampling="joint", subnet_weights={"small": 2.0}, other_arguments={"bf16": True, "relation_weight": 1.0}
    )
    with pytest.raises(TypeError, match="sampling=None: expected str, got NoneType"):
        settings.with_arguments({"sampling": None})


def test_only_given_settings_are_updated():
    assert TrainingSettings().updated(seed=1, batch_size=None) == TrainingSettings(seed=1)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ({"name": "news"}, ValueError, "lacks the key 'source'"),
        ({**SMALLEST, "sourc": "x"}, ValueError, "Unknown key 'sourc' in the recipe: possible are name, source, task"),
        ({**SMALLEST, "training": {"epochs": 3}}, ValueError, "Unknown key 'epochs' in training: possible are max_le"),
        ({**SMALLEST, "fast": {"rows": 3}}, ValueError, "Unknown key 'rows' in fast"),
        ({**SMALLEST, "subnets": {"tiny": {"wide": 0.5}}}, ValueError, r"Unknown key 'wide' in subnets\['tiny'\]"),
        ({**SMALLEST, "subnets": {"tiny": {"width": 1.5}}}, ValueError, "width=1.5 is no multiplier in"),
        ({**SMALLEST, "subnets": {"tiny": 0.5}}, TypeError, r"subnets\['tiny'\]=0.5: expected multipliers"),
        ({**SMALLEST, "subnets": {}}, ValueError, "subnets is empty"),
        ({**SMALLEST, "subnets": ["tiny"]}, TypeError, r"subnets=\['tiny'\]: expected a mapping"),
        ({**SMALLEST, "task": "parsing"}, ValueError, "task='parsing' is unknown"),
        ({**SMALLEST, "formats": ["gguf"]}, ValueError, "'gguf'"),
        ({**SMALLEST, "repositories": {"huge": "x"}}, ValueError, "repositories has 'huge'"),
        ({**SMALLEST, "card": {"licence": "mit"}}, ValueError, "licence"),
        ({**SMALLEST, "training": {"batch_size": 0}}, ValueError, "batch_size=0 is smaller than 1"),
        ({**SMALLEST, "training": {"batch_size": 2.5}}, TypeError, "batch_size=2.5: expected int, got float"),
        ({**SMALLEST, "training": {"batch_size": True}}, TypeError, "batch_size=True: expected int, got bool"),
        ({**SMALLEST, "training": {"cotrain_epochs": -1}}, ValueError, "cotrain_epochs=-1 is negative"),
        ({**SMALLEST, "training": {"cotrain_epochs": float("nan")}}, ValueError, "cotrain_epochs=nan is not finite"),
        ({**SMALLEST, "training": {"finetune_epochs": float("inf")}}, ValueError, "finetune_epochs=inf is not finite"),
        ({**SMALLEST, "training": {"learning_rate": float("nan")}}, ValueError, "learning_rate=nan is not finite"),
        ({**SMALLEST, "name": ""}, TypeError, "name='': expected text"),
        (["name"], TypeError, "A recipe is a mapping"),
    ],
)
def test_each_fault_is_one_error_that_names_the_key(values, kind, message):
    with pytest.raises(kind, match=message):
        Recipe.from_dict(values)


def test_a_number_that_yaml_reads_as_text_is_an_error_with_the_remedy(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("name: news\nsource: org/bert\ntraining: {learning_rate: 1e-4}\n")
    with pytest.raises(TypeError, match=r"recipe.yaml: learning_rate='1e-4': expected float.*needs a dot in 1.0e-4"):
        Recipe.load(path)


def test_a_file_that_is_no_yaml_and_a_name_that_is_unknown_are_errors(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("name: [news\n")
    with pytest.raises(ValueError, match="recipe.yaml is not valid YAML"):
        Recipe.load(path)
    with pytest.raises(FileNotFoundError, match="no recipe 'nothing': give a YAML file, or one of .*minilm-bbc-news"):
        Recipe.load("nothing")
