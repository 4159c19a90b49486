import pytest
import torch

from hf_elastic import SubnetConfig
from hf_elastic.training.layer_drop import drop_layers
from tests.training.cases import collate, make_model, make_rows


@pytest.fixture
def config():
    return make_model("classification").config


def test_how_often(config):
    kept = [len(drop_layers(SubnetConfig(), config, 0.25, f"0-{draw}").layers) for draw in range(1000)]
    assert sum(kept) / len(kept) == pytest.approx(3, abs=0.1)
    assert min(kept) >= 1


def test_one_layer_is_left_however_likely_the_drop(config):
    kept = [drop_layers(SubnetConfig(), config, 0.999, str(draw)).layers for draw in range(50)]
    assert all(len(layers) == 1 for layers in kept)
    assert len(set(kept)) > 1


def test_nothing_is_dropped_without_a_probability(config):
    assert drop_layers(SubnetConfig(layers=(0, 2)), config, 0.0, "0") == SubnetConfig(layers=(0, 2))


def test_what_is_kept_has_its_size(config):
    subnet = SubnetConfig(layers=(0, 1, 3), num_attention_heads=(1, 2, 3), intermediate_size=(16, 32, 48))
    sizes = {size.layer: size for size in subnet.layer_sizes(config)}
    draws = [drop_layers(subnet, config, 0.5, str(draw)).layer_sizes(config) for draw in range(20)]
    assert all(size == sizes[size.layer] for draw in draws for size in draw)
    assert len(set(draws)) > 3


def test_the_same_draw_gives_the_same_layers(config):
    first, second = (drop_layers(SubnetConfig(), config, 0.5, "3-large") for _ in range(2))
    assert first == second


def test_the_model_runs_what_is_kept():
    model = make_model("classification").eval()
    batch = collate(make_rows("classification", 4))
    dropped = drop_layers(SubnetConfig(num_attention_heads=2), model.config, 0.5, "1")
    with torch.no_grad():
        expected = model(**batch, subnet=SubnetConfig(layers=dropped.layers, num_attention_heads=2)).logits
        assert torch.equal(model(**batch, subnet=dropped).logits, expected)
