"""Training arguments on the command line."""

import pytest
import typer

from hf_elastic.cli.options import read_arguments
from hf_elastic.cli.training_options import TrainingOptions
from hf_elastic.recipes import TrainingSettings


def test_values_are_read_as_in_yaml():
    given = ["temperature=2.0", "bf16=true", 'layer_map={"1": 2}', "hidden_loss=cosine", "optim_args=eps=1"]
    assert read_arguments(given) == {
        "temperature": 2.0,
        "bf16": True,
        "layer_map": {"1": 2},
        "hidden_loss": "cosine",
        "optim_args": "eps=1",
    }
    assert read_arguments(None) == {}


@pytest.mark.parametrize("given", ["temperature", "=2"])
def test_without_a_name_or_a_value(given):
    with pytest.raises(typer.BadParameter, match="write it as temperature=2.0"):
        read_arguments([given])


def test_settings_without_an_option_and_arguments_of_the_recipe_come_together(checkpoint, data_file, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "name: news\nsource: org/bert\n"
        "training: {batch_size: 4, temperature: 3.0, other_arguments: {log_resources: true, relation_weight: 0.5}}\n"
    )
    given = ["temperature=2.0", "sampling=joint", "subnet_weights={tiny: 2.0}", "relation_weight=1.0"]
    options = TrainingOptions(source=str(checkpoint), data=str(data_file), recipe=str(recipe), argument=given)
    assert options.read().settings == TrainingSettings(
        batch_size=4,
        temperature=2.0,
        sampling="joint",
        subnet_weights={"tiny": 2.0},
        other_arguments={"log_resources": True, "relation_weight": 1.0},
    )
