"""The configuration validates itself and comes back from disk as it was."""

import json

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from hf_elastic import ElasticConfig, SubnetConfig
from hf_elastic.modeling.configuration_elastic import AUTO_MAP


def test_json_round_trip(tiny_config, tmp_path):
    tiny_config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is ElasticConfig
    assert loaded.subnets == tiny_config.subnets
    assert loaded.to_diff_dict() == tiny_config.to_diff_dict()
    first = (tmp_path / "config.json").read_text()
    loaded.save_pretrained(tmp_path)
    assert (tmp_path / "config.json").read_text() == first


def test_round_trip_of_layers_that_differ(tmp_path):
    layers = {1: {"num_attention_heads": 2}, 10: {"intermediate_size": 32}}
    config = ElasticConfig(
        num_hidden_layers=12, hidden_size=32, num_attention_heads=4, intermediate_size=64, per_layer_config=layers
    )
    config.subnets = {"all": SubnetConfig(num_attention_heads=2, intermediate_size=32)}
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert loaded.layer_sizes() == config.layer_sizes()
    assert loaded.layer_sizes()[1][1:] == (2, 64)
    assert loaded.layer_sizes()[10][1:] == (4, 32)
    assert loaded.subnets == config.subnets


def test_the_auto_map_is_complete(tiny_config):
    assert json.loads(tiny_config.to_json_string())["auto_map"] == AUTO_MAP


def test_subnets_may_be_dictionaries(tiny_config):
    tiny_config.subnets = {"half": {"num_attention_heads": 2, "layers": [0, 1]}}
    assert tiny_config.subnets == {"half": SubnetConfig(layers=(0, 1), num_attention_heads=2)}


@pytest.mark.parametrize(
    ("subnets", "error", "message"),
    [
        ({"big": SubnetConfig(intermediate_size=65)}, ValueError, "Subnet 'big' does not fit its supernet: .*65"),
        ({"a": {"heads": 3}}, ValueError, "Unknown subnet setting 'heads'"),
        ({"a": 3}, TypeError, "Subnet 'a' is a int"),
        ({"a/b": SubnetConfig()}, ValueError, "Subnet name 'a/b'"),
        ({"": SubnetConfig()}, ValueError, "Subnet name ''"),
        ({"mean": SubnetConfig()}, ValueError, "Subnet name 'mean'"),
        ({"supernet": SubnetConfig()}, ValueError, "Subnet name 'supernet'"),
        (
            {"wide": SubnetConfig(num_attention_heads=2), "many-heads": SubnetConfig(intermediate_size=32)},
            ValueError,
            r"Subnets 'wide' and 'many-heads' are not nested: 'wide' is larger in intermediate_size of layer 0 "
            r"\(64 and 32\), 'many-heads' in num_attention_heads of layer 0 \(2 and 4\)",
        ),
    ],
)
def test_wrong_subnets_are_named_when_they_are_assigned(subnets, error, message, tiny_config):
    before = tiny_config.subnets
    with pytest.raises(error, match=message):
        tiny_config.subnets = subnets
    assert tiny_config.subnets is before
    with pytest.raises(error, match=message):
        ElasticConfig(**{**tiny_config.to_dict(), "subnets": subnets})


def test_subnets_nest_across_depths(tiny_config):
    tiny_config.subnets = {
        "deep-narrow": SubnetConfig(num_attention_heads=1, intermediate_size=32),
        "shallow-wide": SubnetConfig(layers=(0, 3)),
        "other-layers": SubnetConfig(layers=(1, 2), num_attention_heads=2),
    }
    assert list(tiny_config.subnets) == ["deep-narrow", "shallow-wide", "other-layers"]


def test_wrong_subnets_added_in_place_are_not_saved(tiny_config, tmp_path):
    tiny_config.subnets["big"] = SubnetConfig(num_attention_heads=9)
    with pytest.raises(StrictDataclassError, match="Subnet 'big' does not fit"):
        tiny_config.save_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"hidden_size": "32"}, StrictDataclassError, "'hidden_size' expected int, got str"),
        ({"num_hidden_layers": 0}, ValueError, "num_hidden_layers=0 must be at least 1"),
        ({"num_attention_heads": 0}, ValueError, "num_attention_heads=0 must be at least 1"),
        ({"hidden_size": 30, "num_attention_heads": 4}, ValueError, "hidden_size=30 is not a multiple.*head_dim"),
    ],
)
def test_wrong_fields_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        ElasticConfig(**settings)


def test_head_dim_may_differ_from_hidden_size_over_heads():
    assert ElasticConfig(hidden_size=30, num_attention_heads=4, head_dim=8).head_dim == 8
    assert ElasticConfig(hidden_size=32, num_attention_heads=4).head_dim == 8
