"""The configuration validates itself and comes back from disk as it was."""

import json
import math

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig

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
    assert loaded.layer_sizes()[1][1:3] == (2, 64)
    assert loaded.layer_sizes()[10][1:3] == (4, 32)
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
        ({"position_embedding_type": "relative_key"}, StrictDataclassError, "cumulative.*relative_key"),
        ({"norm_position": "middle"}, StrictDataclassError, "middle"),
        ({"layer_types": ["full_attention"] * 3}, ValueError, "layer_types has 3 entries, but num_hidden_layers=12"),
        ({"layer_types": ["local"] * 12}, ValueError, "layer_types has 'local': possible are .*sliding_attention"),
        ({"layer_groups": [0, 1]}, ValueError, "layer_groups has 2 entries, but num_hidden_layers=12"),
        ({"sliding_window": -1}, ValueError, "sliding_window=-1 must be at least 0"),
        ({"num_random_blocks": -1}, ValueError, "num_random_blocks=-1"),
        ({"attention_block_size": 24}, ValueError, "attention_block_size=24 must be a multiple of 16"),
        ({"attention_sparsity": 1.0}, ValueError, r"attention_sparsity=1.0 must lie in \[0, 1\)"),
        ({"num_experts": 2, "num_experts_per_tok": 3}, ValueError, "num_experts_per_tok=3 is more than num_experts=2"),
        ({"embedding_size": 128, "embedding_projection": False}, ValueError, "embedding_projection=True"),
        (
            {"num_hidden_layers": 2, "layer_groups": [0, 0], "layer_types": ["full_attention", "linear_attention"]},
            ValueError,
            "layers 0 and 1 share their weights, but layer_types",
        ),
        (
            {"num_hidden_layers": 2, "layer_groups": [0, 0], "per_layer_config": {1: {"num_attention_heads": 3}}},
            ValueError,
            "num_attention_heads is 12 in layer 0 and 3 in layer 1",
        ),
        (
            {"layer_groups": [0] * 12, "first_attention_norm": False},
            ValueError,
            "layer 1 cannot share the weights of layer 0, which has no attention norm",
        ),
        (
            {"position_embedding_type": "rotary", "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
            ValueError,
            "rope_type='dynamic': possible are .*'linear'",
        ),
        ({"position_embedding_type": "rotary", "rope_parameters": {"full_attention": None}}, ValueError, "None: give"),
        ({"position_embedding_type": "rotary", "rope_parameters": {"rope_theta": -1}}, ValueError, "rope_theta=-1"),
        ({"head_dim": 0}, ValueError, "head_dim=0 must be at least 1"),
        ({"embedding_size": 0}, ValueError, "embedding_size=0 must be at least 1"),
        ({"pad_token_id": 99, "vocab_size": 99}, ValueError, r"pad_token_id=99 must lie in \[0, vocab_size=99\)"),
        ({"pad_token_id": -1}, ValueError, "pad_token_id=-1 must lie"),
        ({"type_vocab_size": -1}, ValueError, "type_vocab_size=-1 must be at least 0"),
        ({"hidden_dropout_prob": 2}, ValueError, r"hidden_dropout_prob=2 must lie in \[0, 1\]"),
        ({"classifier_dropout": math.nan}, ValueError, "classifier_dropout=nan must lie"),
        ({"layer_norm_eps": 0}, ValueError, "layer_norm_eps=0 must be a finite number above 0"),
        ({"sparsity_penalty": math.nan}, ValueError, "sparsity_penalty=nan must be a finite number"),
        ({"router_aux_loss_coef": -1}, ValueError, "router_aux_loss_coef=-1 must be"),
    ],
)
def test_wrong_fields_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        ElasticConfig(**settings)


def test_head_dim_may_differ_from_hidden_size_over_heads():
    assert ElasticConfig(hidden_size=30, num_attention_heads=4, head_dim=8).head_dim == 8
    assert ElasticConfig(hidden_size=32, num_attention_heads=4).head_dim == 8


def test_rotary_parameters_are_completed():
    config = ElasticConfig(position_embedding_type="rotary", rope_parameters={"rope_theta": 500.0})
    assert config.rope_parameters == {"full_attention": {"rope_theta": 500.0, "rope_type": "default"}}
    assert ElasticConfig(position_embedding_type="rotary").rope_parameters["full_attention"]["rope_theta"] == 10000.0
    assert ElasticConfig().rope_parameters is None


def test_sparse_attention_replaces_the_layers_that_see_everything(tmp_path):
    layer_types = ["full_attention", "sliding_attention"]
    config = ElasticConfig(num_hidden_layers=2, layer_types=layer_types)
    config.sparse_attention = True
    assert config.layer_types == ["block_sparse_attention", "sliding_attention"]
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).layer_types == config.layer_types
    config.sparse_attention = False
    assert config.layer_types == layer_types
    with_both = ElasticConfig(num_hidden_layers=2, layer_types=layer_types, sparse_attention=True)
    assert with_both.layer_types == ["block_sparse_attention", "sliding_attention"]


def test_a_file_of_sparse_layers_is_read_by_transformers_too(tmp_path):
    layer_types = ["full_attention", "block_sparse_attention", "sliding_attention"]
    config = ElasticConfig(num_hidden_layers=3, layer_types=layer_types)
    config.save_pretrained(tmp_path)
    assert ElasticConfig.from_pretrained(tmp_path).to_dict() == config.to_dict()
    unknown = PreTrainedConfig.from_json_file(tmp_path / "config.json")
    assert unknown.layer_types == ["full_attention", "full_attention", "sliding_attention"]


@pytest.mark.parametrize("name", ["tiny", "mini", "small", "medium", "base", "large"])
def test_presets_have_heads_of_one_size(name):
    config = ElasticConfig.from_preset(name, vocab_size=99)
    assert config.head_dim == 64
    assert config.hidden_size == 64 * config.num_attention_heads
    assert config.vocab_size == 99


def test_an_unknown_preset_is_named_with_the_possible_ones():
    with pytest.raises(ValueError, match="'huge': possible are .*'large'"):
        ElasticConfig.from_preset("huge")
    with pytest.raises(ValueError, match=r"\['tiny'\]: possible are"):
        ElasticConfig.from_preset(["tiny"])


def test_heads_and_neurons_follow_another_hidden_size():
    config = ElasticConfig.from_preset("base", hidden_size=512)
    assert (config.num_attention_heads, config.head_dim, config.intermediate_size) == (8, 64, 2048)
    config = ElasticConfig.from_preset("base", hidden_size=480, num_attention_heads=10)
    assert config.head_dim == 48
    config = ElasticConfig.from_preset("base", head_dim=32)
    assert config.num_attention_heads == 24
    with pytest.raises(ValueError, match="hidden_size=500 is not a multiple of head_dim=64: give num_attention_heads"):
        ElasticConfig.from_preset("base", hidden_size=500)


def test_a_configuration_grows_and_shrinks_with_heads_of_one_size():
    config = ElasticConfig.from_preset("base", layer_types=["full_attention", *["sliding_attention"] * 2] * 4)
    config.subnets = {"half": SubnetConfig.scaled(config, width=0.5)}
    grown = config.scaled(width=4 / 3, depth=1.5)
    assert (grown.hidden_size, grown.num_attention_heads, grown.head_dim) == (1024, 16, 64)
    assert (grown.intermediate_size, grown.embedding_size, grown.num_hidden_layers) == (4096, 1024, 18)
    assert grown.layer_types == ["full_attention", *["sliding_attention"] * 2] * 6
    assert grown.subnets == {}
    shrunk = config.scaled(width=0.5, depth=0.5)
    assert (shrunk.hidden_size, shrunk.num_attention_heads, shrunk.num_hidden_layers) == (384, 6, 6)
    assert shrunk.layer_types == config.layer_types[:6]


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({}, {"width": 0}, "width=0: a multiplier must be a positive number"),
        ({"layer_groups": [0] * 12}, {"depth": 2}, "layer_groups is set"),
        ({"per_layer_config": {0: {"num_attention_heads": 2}}}, {"depth": 2}, "per_layer_config is set"),
    ],
)
def test_what_cannot_be_scaled_is_named(settings, arguments, message):
    with pytest.raises(ValueError, match=message):
        ElasticConfig(**settings).scaled(**arguments)
