"""Descriptions of sizes: what they mean, what they refuse."""

import json

import numpy as np
import pytest

from hf_elastic import ElasticConfig, SubnetConfig
from hf_elastic.modeling.subnet_elastic import LayerSize, evenly_spaced


def test_the_default_is_the_full_model(tiny_config):
    assert SubnetConfig().layer_sizes(tiny_config) == tuple(LayerSize(layer, 4, 64, 32) for layer in range(4))


def test_uniform_and_per_layer_sizes(tiny_config):
    subnet = SubnetConfig(layers=[0, 2], num_attention_heads=3, intermediate_size=[48, 32])
    assert subnet.layer_sizes(tiny_config) == (LayerSize(0, 3, 48, 32), LayerSize(2, 3, 32, 32))


def test_sizes_are_those_of_the_layers_that_are_kept():
    config = ElasticConfig(
        num_hidden_layers=3,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=64,
        per_layer_config={1: {"num_attention_heads": 2, "intermediate_size": 32}},
    )
    assert SubnetConfig(layers=(1, 2)).layer_sizes(config) == (LayerSize(1, 2, 32, 32), LayerSize(2, 4, 64, 32))
    with pytest.raises(ValueError, match="3 in layer 1 is larger than the supernet's 2"):
        SubnetConfig(num_attention_heads=3).layer_sizes(config)
    assert SubnetConfig.scaled(config, width=0.5).num_attention_heads == (2, 1, 2)


@pytest.mark.parametrize("subnet", [SubnetConfig(), SubnetConfig((0, 1), 2, (32, 64)), SubnetConfig(layers=(3,))])
def test_json_round_trip(subnet):
    assert SubnetConfig.from_dict(json.loads(json.dumps(subnet.to_dict()))) == subnet


def test_integers_of_numpy_are_integers():
    subnet = SubnetConfig(layers=np.arange(2), num_attention_heads=np.int64(3))
    assert subnet == SubnetConfig(layers=(0, 1), num_attention_heads=3)
    assert type(subnet.num_attention_heads) is int


def test_scaled_takes_a_configuration(classifier):
    with pytest.raises(TypeError, match="config is a ElasticForSequenceClassification"):
        SubnetConfig.scaled(classifier)


def test_the_hidden_size_is_one_number_for_all_layers(tiny_config):
    assert {size.hidden_size for size in SubnetConfig(hidden_size=24).layer_sizes(tiny_config)} == {24}
    assert SubnetConfig.scaled(ElasticConfig(), hidden=0.5).hidden_size == 384
    with pytest.raises(TypeError, match="hidden_size=\\[16, 32\\]: give one number"):
        SubnetConfig(hidden_size=[16, 32])
    with pytest.raises(ValueError, match="hidden_size=33: 33 in layer 0 is larger than the supernet's 32"):
        SubnetConfig(hidden_size=33).layer_sizes(tiny_config)


def test_experts_are_those_of_the_layers_that_have_some():
    config = ElasticConfig(
        num_hidden_layers=3,
        num_experts=8,
        num_experts_per_tok=4,
        per_layer_config={1: {"num_experts": 1, "num_experts_per_tok": 1}},
    )
    sizes = SubnetConfig(num_experts=3).layer_sizes(config)
    assert [(size.num_experts, size.num_experts_per_tok) for size in sizes] == [(3, 3), (1, 1), (3, 3)]
    sizes = SubnetConfig(num_experts_per_tok=(1, 1, 2)).layer_sizes(config)
    assert [(size.num_experts, size.num_experts_per_tok) for size in sizes] == [(8, 1), (1, 1), (8, 2)]
    assert SubnetConfig.scaled(config, experts=0.5).num_experts_per_tok == (2, 1, 2)
    with pytest.raises(ValueError, match="num_experts_per_tok=4: 4 in layer 0 is more than the 2 experts"):
        SubnetConfig(num_experts=2, num_experts_per_tok=4).layer_sizes(config)
    with pytest.raises(ValueError, match="num_experts=2: the supernet has no experts"):
        SubnetConfig(num_experts=2).layer_sizes(ElasticConfig())


def test_layers_that_see_everything_keep_more_width_than_local_ones():
    layer_types = ["full_attention", "sliding_attention", "linear_attention"]
    config = ElasticConfig(num_hidden_layers=3, layer_types=layer_types)
    subnet = SubnetConfig.scaled(config, width=0.5)
    assert subnet.num_attention_heads == (9, 6, 6)
    assert subnet.intermediate_size == (2304, 1536, 1536)


def test_layers_that_share_weights_keep_the_same_part_of_them():
    config = ElasticConfig(num_hidden_layers=3, layer_groups=[0, 0, 1])
    assert [size.weights for size in SubnetConfig(num_attention_heads=(4, 4, 2)).layer_sizes(config)] == [0, 0, 1]
    with pytest.raises(ValueError, match="num_attention_heads is 4 in layer 0 and 2 in layer 1, .* share"):
        config.subnets = {"crossed": SubnetConfig(num_attention_heads=(4, 2, 2))}


def test_equal_descriptions_are_one_dictionary_key():
    assert len({SubnetConfig(layers=[0, 1]), SubnetConfig(layers=(0, 1))}) == 1


@pytest.mark.parametrize("total", range(1, 25))
def test_kept_layers_are_evenly_spaced(total):
    for kept in range(1, total + 1):
        layers = evenly_spaced(total, kept)
        gaps = [later - earlier for earlier, later in zip(layers, layers[1:], strict=False)]
        assert len(layers) == kept
        assert layers[0] == 0
        assert min(gaps, default=1) >= 1
        assert max(gaps, default=0) - min(gaps, default=0) <= 1
        assert kept == 1 or layers[-1] == total - 1


@pytest.mark.parametrize(
    ("multipliers", "expected"),
    [
        ({}, SubnetConfig()),
        ({"width": 0.5}, SubnetConfig(num_attention_heads=6, intermediate_size=768)),
        ({"depth": 0.5}, SubnetConfig(layers=(0, 3, 5))),
        ({"width": 0.5, "heads": 1.0}, SubnetConfig(intermediate_size=768)),
        ({"heads": 0.25, "ffn": 0.3}, SubnetConfig(num_attention_heads=3, intermediate_size=448)),
        (
            {"depth": 0.01, "width": 0.001},
            SubnetConfig(layers=(0,), num_attention_heads=1, intermediate_size=32),
        ),
    ],
)
def test_scaled(multipliers, expected):
    config = ElasticConfig(num_hidden_layers=6, hidden_size=384, intermediate_size=1536)
    assert SubnetConfig.scaled(config, **multipliers) == expected


def test_a_part_of_no_experts_is_refused(tiny_config):
    with pytest.raises(ValueError, match="experts=0.5, but no layer has experts"):
        SubnetConfig.scaled(tiny_config, experts=0.5)


def test_scaled_never_exceeds_the_supernet():
    config = ElasticConfig(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=50)
    for width in (0.1, 0.5, 0.9, 0.99):
        SubnetConfig.scaled(config, width=width).layer_sizes(config)


@pytest.mark.parametrize("multiplier", [0, -0.5, 1.01, float("nan"), "0.5"])
@pytest.mark.parametrize("name", ["width", "depth", "heads", "ffn"])
def test_multipliers_outside_the_range_are_named(name, multiplier, tiny_config):
    with pytest.raises(ValueError, match=rf"{name}={multiplier!r}"):
        SubnetConfig.scaled(tiny_config, **{name: multiplier})


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"layers": ()}, ValueError, r"layers=\(\) is empty"),
        ({"layers": (0, -1)}, ValueError, r"layers=\(0, -1\): -1 is smaller than 0"),
        ({"layers": 3}, TypeError, "layers=3"),
        ({"layers": ("a",)}, TypeError, "'a'"),
        ({"layers": "01"}, TypeError, "layers='01'"),
        ({"num_attention_heads": 0}, ValueError, "num_attention_heads=0: 0 is smaller than 1"),
        ({"num_attention_heads": (2, 0)}, ValueError, "0 is smaller than 1"),
        ({"num_attention_heads": 2.0}, TypeError, "2.0"),
        ({"num_attention_heads": True}, TypeError, "True"),
        ({"intermediate_size": 0}, ValueError, "intermediate_size=0"),
    ],
)
def test_impossible_sizes_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        SubnetConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": (0, 4)}, r"layer 4 does not exist, the supernet has 4 layers \(0 to 3\)"),
        ({"layers": (1, 1)}, r"layers=\(1, 1\): each layer may be kept once, in ascending order, e.g. \(1,\)"),
        ({"layers": (2, 0)}, r"e.g. \(0, 2\)"),
        ({"num_attention_heads": 5}, "5 in layer 0 is larger than the supernet's 4"),
        ({"intermediate_size": (64, 64, 65, 64)}, "65 in layer 2 is larger than the supernet's 64"),
        ({"layers": (0, 1), "intermediate_size": (32, 32, 32)}, "has 3 entries, but 2 layers are kept"),
    ],
)
def test_sizes_that_do_not_fit_are_named(settings, message, tiny_config):
    with pytest.raises(ValueError, match=message):
        SubnetConfig(**settings).layer_sizes(tiny_config)


def test_unknown_settings_are_named():
    with pytest.raises(ValueError, match="'hidden'.*'num_attention_heads'"):
        SubnetConfig.from_dict({"hidden": 3})
