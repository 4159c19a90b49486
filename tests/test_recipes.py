"""Recipes: those that ship, and each way in which one can be wrong."""

import pytest
import yaml

from hf_elastic import ElasticConfig, ElasticForSequenceClassification, SubnetConfig
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
        ({"output_dir": "out"}, "'output_dir' is no setting. The folder is given as -o"),
        ({"temperature": 2.0}, "'temperature' is a setting of its own"),
        ({"num_train_epochs": 2.0}, "'num_train_epochs' is a setting of its own, or follows from one"),
    ],
)
def test_arguments_that_are_none(arguments, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(other_arguments=arguments)


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
