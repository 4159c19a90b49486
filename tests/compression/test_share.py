"""Layers that share their weights: saved once, trained together, cut like others."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from hf_elastic import (
    ElasticConfig,
    ElasticForSequenceClassification,
    SubnetConfig,
    convert,
    extract,
    share_layers,
    split_into_experts,
    to_stock,
)

from ..conftest import TINY, make_inputs, make_labels, randomize

GROUPS = [0, 0, 0, 1]


@pytest.fixture
def unshared(classifier):
    classifier.config.subnets = {"half": SubnetConfig(layers=(0, 3), num_attention_heads=2)}
    return classifier


@pytest.fixture
def sharing(unshared):
    return share_layers(unshared, GROUPS)


def test_a_group_begins_with_the_mean_or_the_first_of_its_layers(unshared):
    weights = [layer.mlp.up_proj.weight for layer in unshared.model.layers]
    mean = share_layers(unshared, [3, 3, 7, 3])
    torch.testing.assert_close(mean.model.layers[0].mlp.up_proj.weight, (weights[0] + weights[1] + weights[3]) / 3)
    assert torch.equal(mean.model.layers[1].mlp.up_proj.weight, weights[2])
    first = share_layers(unshared, GROUPS, weights="first")
    assert torch.equal(first.model.layers[0].mlp.up_proj.weight, weights[0])
    assert first.config.layer_groups == GROUPS
    assert first.config.subnets == unshared.config.subnets


def test_computes_what_equal_layers_compute(sharing, unshared):
    weights = sharing.state_dict()
    for name in unshared.state_dict():
        layer = next((layer for layer in range(4) if f".layers.{layer}." in name), None)
        source = name if layer is None else name.replace(f".layers.{layer}.", f".layers.{GROUPS[layer]}.")
        unshared.state_dict()[name].copy_(weights[source])
    inputs = make_inputs("ElasticForSequenceClassification")
    torch.testing.assert_close(sharing(**inputs).logits, unshared(**inputs).logits)


def test_weights_are_saved_once_and_gradients_add_up(sharing, tmp_path):
    sharing.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert {name.split(".")[2] for name in stored if ".layers." in name} == {"0", "1"}
    _, report = ElasticForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())

    batch = make_inputs("ElasticForSequenceClassification") | make_labels("ElasticForSequenceClassification")
    sharing(**batch).loss.backward()
    shared = sharing.model.layers[0].mlp.up_proj.weight.grad
    layers = torch.nn.ModuleList([copy.deepcopy(sharing.model.layers[group]) for group in GROUPS])
    layers.zero_grad()
    sharing.model.layers = layers
    sharing.model.layer_sizes = tuple(size._replace(group=None) for size in sharing.model.layer_sizes)
    sharing(**batch).loss.backward()
    torch.testing.assert_close(sum(layer.mlp.up_proj.weight.grad for layer in layers[:3]), shared)


@pytest.mark.parametrize("layers", [(0, 1, 3), (1, 2), (0, 3), (3,)])
def test_a_member_shares_what_it_keeps(sharing, layers):
    subnet = SubnetConfig(layers=layers, num_attention_heads=2, intermediate_size=32)
    member = extract(sharing, subnet)
    inputs = make_inputs("ElasticForSequenceClassification")
    torch.testing.assert_close(member(**inputs).logits, sharing(**inputs, subnet=subnet).logits, atol=1e-6, rtol=1e-6)
    assert len(member.model.layers) == len({GROUPS[layer] for layer in layers})


def test_goes_back_to_a_class_without_sharing():
    bert = randomize(BertModel(BertConfig(**TINY))).eval()
    sharing = share_layers(convert(bert), GROUPS)
    inputs = make_inputs("BertModel")
    stock = to_stock(sharing)
    torch.testing.assert_close(stock(**inputs).last_hidden_state, sharing(**inputs).last_hidden_state)
    assert len(stock.encoder.layer) == 4


def test_random_blocks_are_shared_as_well():
    window = {"layer_types": ["sliding_attention"] * 4, "sliding_window": 2, "attention_block_size": 16}
    config = ElasticConfig(**TINY | window | {"max_position_embeddings": 128}, num_random_blocks=1, num_labels=3)
    sharing = share_layers(randomize(ElasticForSequenceClassification(config)).eval(), [0, 0, 1, 1])
    assert sharing.config.random_block_seeds == [0, 0, 2, 2]
    tokens, subnet = torch.randint(5, 99, (2, 120)), SubnetConfig(layers=(1, 3))
    member = extract(sharing, subnet)
    torch.testing.assert_close(member(tokens).logits, sharing(tokens, subnet=subnet).logits, atol=1e-6, rtol=1e-5)


def test_what_cannot_be_shared_is_named(unshared, sharing):
    with pytest.raises(ValueError, match=r"share weights already: layer_groups=\[0, 0, 0, 1\]"):
        share_layers(sharing, GROUPS)
    with pytest.raises(ValueError, match="layer_groups has 2 entries, but num_hidden_layers=4"):
        share_layers(unshared, [0, 0])
    with pytest.raises(ValueError, match="weights='median': possible are 'mean' and 'first'"):
        share_layers(unshared, GROUPS, weights="median")
    with pytest.raises(TypeError, match=r"layer_groups=\[0.5\]: give a list with a whole number"):
        share_layers(unshared, [0.5])
    experts = split_into_experts(unshared, 2, 1)
    with pytest.raises(ValueError, match="weights='mean': .* Share before splitting"):
        share_layers(experts, GROUPS)
    assert share_layers(experts, range(4)).config.layer_groups == [0, 1, 2, 3]
    unshared.config.subnets = {"small": SubnetConfig(num_attention_heads=(3, 2, 2, 2))}
    with pytest.raises(ValueError, match="Subnet 'small' does not fit.*share their weights"):
        share_layers(unshared, [0, 0, 1, 2])  # `small` keeps 3 heads of layer 0 and 2 of layer 1
    different = ElasticConfig(**TINY, num_labels=3, per_layer_config={1: {"intermediate_size": 32}})
    with pytest.raises(ValueError, match="intermediate_size is 64 in layer 0 and 32 in layer 1"):
        share_layers(ElasticForSequenceClassification(different), GROUPS)
