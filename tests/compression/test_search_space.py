"""Whatever numbers are drawn, the size nests with the named ones, and its own numbers give it again."""

import random

import pytest

from hf_elastic import ElasticConfig, SubnetConfig
from hf_elastic.compression.mix_n_match import mix_n_match
from hf_elastic.compression.search_space import SPACES
from hf_elastic.compression.sizes import nests, size_key, subnet_of
from tests.conftest import TINY

NAMED = {
    "none": {},
    "the full model": {"large": SubnetConfig()},
    "a chain": {
        "large": SubnetConfig(),
        "small": SubnetConfig(num_attention_heads=3, intermediate_size=48),
        "tiny": SubnetConfig(layers=(0, 3), num_attention_heads=2, intermediate_size=32),
    },
    "layers of their own": {
        "wide": SubnetConfig(layers=(0, 2), intermediate_size=64, num_attention_heads=2),
        "deep": SubnetConfig(layers=(1, 2, 3), intermediate_size=32, num_attention_heads=1),
    },
    "another hidden size": {"narrow": SubnetConfig(hidden_size=16, num_attention_heads=2, intermediate_size=32)},
}
SUPERNETS = {
    "plain": {},
    "sharing": {"layer_groups": [0, 0, 1, 2]},
    "experts": {"num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64},
}


def make_config(supernet="plain", named="a chain"):
    config = ElasticConfig(**{**TINY, **SUPERNETS[supernet]})
    if supernet == "sharing" and named == "layers of their own":
        pytest.skip("layers that share their weights have one width")
    config.subnets = NAMED[named]
    return config


def draw(space, rng):
    return space.decode({name: rng.randrange(count) for name, count in space.parameters.items()})


@pytest.mark.parametrize("supernet", SUPERNETS)
@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("choices", SPACES)
def test_what_is_drawn_nests_and_is_found_again(choices, named, supernet):
    config = make_config(supernet, named)
    space, rng = SPACES[choices](config), random.Random(0)
    fewest = 1 if not space.named else min(len(sizes) for sizes in space.named)
    for _ in range(40):
        subnet = draw(space, rng)
        assert nests(subnet, config.subnets, config)
        assert len(subnet.layer_sizes(config)) >= fewest
        again = space.decode(space.encode(subnet))
        assert size_key(again, config) == size_key(subnet, config)


@pytest.mark.parametrize("named", NAMED)
def test_named_sizes_and_mixtures_have_numbers(named):
    config = make_config(named=named)
    space = SPACES["layers"](config)
    for subnet in [SubnetConfig(), *config.subnets.values(), *mix_n_match(config)]:
        if nests(subnet, config.subnets, config):
            assert size_key(space.decode(space.encode(subnet)), config) == size_key(subnet, config)


def test_layers_differ_in_one_space_and_are_alike_in_the_other():
    config = make_config(named="none")
    rng = random.Random(0)
    by_layer = [draw(SPACES["layers"](config), rng).layer_sizes(config) for _ in range(20)]
    assert any(len({size.num_attention_heads for size in sizes}) > 1 for sizes in by_layer)
    as_a_whole = [draw(SPACES["model"](config), rng).layer_sizes(config) for _ in range(20)]
    for sizes in as_a_whole:
        assert len({(size.num_attention_heads, size.intermediate_size) for size in sizes}) == 1
    assert len({len(sizes) for sizes in as_a_whole}) > 1


def test_a_size_that_crosses_is_brought_to_the_nearest_that_does_not():
    config = make_config()
    crossing = [size._replace(num_attention_heads=4, intermediate_size=32) for size in config.layer_sizes()]
    assert not nests(subnet_of(crossing, config), config.subnets, config)
    nearest = SPACES["layers"](config).nearest(crossing).layer_sizes(config)
    assert [size.num_attention_heads for size in nearest] in ([3] * 4, [4] * 4)
    assert nests(subnet_of(nearest, config), config.subnets, config)


def test_widths_of_given_sizes_are_steps_too():
    config = make_config(named="none")
    odd = SubnetConfig(intermediate_size=(33, 40, 41, 64))
    assert SPACES["layers"](config).encode(odd) is None
    space = SPACES["layers"](config, further=[odd])
    assert space.decode(space.encode(odd)) == odd


def test_the_narrowest_sizes_are_no_larger_than_the_named_ones():
    config = make_config()
    narrowest = [subnet.layer_sizes(config) for subnet in SPACES["layers"](config).narrowest()]
    smallest = min(sum(size.intermediate_size for size in sizes) for sizes in narrowest)
    assert smallest <= sum(size.intermediate_size for size in NAMED["a chain"]["tiny"].layer_sizes(config))
