"""The sizes between neighbouring ones, against those written out by hand."""

from hf_elastic import ElasticConfig, SubnetConfig
from hf_elastic.compression.mix_n_match import mix_n_match
from hf_elastic.compression.sizes import nests
from tests.conftest import TINY


def widths(subnet, config):
    return [size.intermediate_size for size in subnet.layer_sizes(config)]


def test_upper_layers_get_the_next_width_one_by_one():
    config = ElasticConfig(**TINY)
    config.subnets = {"half": SubnetConfig(intermediate_size=32, num_attention_heads=2)}
    mixed = [widths(subnet, config) for subnet in mix_n_match(config)]
    assert mixed == [
        [32, 32, 32, 32],
        [32, 32, 32, 64],
        [32, 32, 64, 64],
        [32, 64, 64, 64],
        [64, 64, 64, 64],
    ]


def test_only_neighbours_are_mixed(tiny_config):
    tiny_config.subnets = {
        "small": SubnetConfig(intermediate_size=16),
        "base": SubnetConfig(intermediate_size=32),
    }
    for subnet in mix_n_match(tiny_config):
        assert set(widths(subnet, tiny_config)) in ({16}, {32}, {64}, {16, 32}, {32, 64})
        assert widths(subnet, tiny_config) == sorted(widths(subnet, tiny_config))


def test_layers_that_a_size_leaves_out_are_left_out_in_its_part():
    config = ElasticConfig(**TINY)
    config.subnets = {"shallow": SubnetConfig(layers=(0, 3))}
    layers = [[size.layer for size in subnet.layer_sizes(config)] for subnet in mix_n_match(config)]
    assert layers == [[0, 3], [0, 2, 3], [0, 1, 2, 3]]


def test_layers_with_common_weights_change_together():
    config = ElasticConfig(**TINY, layer_groups=[0, 0, 1, 1])
    config.subnets = {"half": SubnetConfig(intermediate_size=32)}
    mixed = [widths(subnet, config) for subnet in mix_n_match(config)]
    assert mixed == [[32] * 4, [32, 32, 64, 64], [64] * 4]


def test_without_smaller_sizes_there_are_standard_widths():
    config = ElasticConfig(**{**TINY, "intermediate_size": 256})
    config.subnets = {"large": SubnetConfig()}
    uniform = [widths(s, config)[0] for s in mix_n_match(config) if len(set(widths(s, config))) == 1]
    assert uniform == [32, 64, 128, 256]


def test_the_sizes_of_a_chain_can_be_named(tiny_config):
    assert all(nests(subnet, tiny_config.subnets, tiny_config) for subnet in mix_n_match(tiny_config))
