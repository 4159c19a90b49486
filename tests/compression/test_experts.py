"""Experts made of feed-forward networks compute what these do, and routers choose those that matter."""

import copy

import pytest
import torch

from hf_elastic import ElasticForSequenceClassification, SubnetConfig, extract
from hf_elastic.compression.experts import copy_into_experts, split_into_experts
from hf_elastic.modeling.layers_elastic import ElasticMLP

from ..architectures import ARCHITECTURES, make_config
from ..conftest import first_output, make_inputs, make_labels, randomize

DENSE = [name for name, fields in ARCHITECTURES.items() if "num_experts" not in fields]


def make_classifier(name="bert", **settings):
    return randomize(ElasticForSequenceClassification(make_config(name, **settings))).eval()


def tokens_of(class_name="ElasticForSequenceClassification", seed=0):
    """Inputs without token types, of which not every source has two."""
    return {name: value for name, value in make_inputs(class_name, seed).items() if name != "token_type_ids"}


def batches(count=3):
    return [{**tokens_of(seed=seed), **make_labels("ElasticForSequenceClassification")} for seed in range(count)]


def assert_same_output(model, other):
    inputs = tokens_of(type(model).__name__)
    with torch.no_grad():
        expected, actual = first_output(model(**inputs)), first_output(other(**inputs))
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("data", [True, False])
def test_all_parts_are_the_network(name, data):
    model = make_classifier(name)
    before = copy.deepcopy(model.state_dict())
    split = split_into_experts(model, 4, 4, batches() if data else None)
    assert_same_output(model, split)
    assert (split.config.num_experts, split.config.intermediate_size) == (4, 16)
    assert split.config.expert_weighting == "unit"
    assert all(torch.equal(weight, before[key]) for key, weight in model.state_dict().items())
    number = sum(parameter.numel() for parameter in model.parameters())
    routers = sum(parameter.numel() for key, parameter in split.named_parameters() if "router" in key)
    assert sum(parameter.numel() for parameter in split.parameters()) == number + routers


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_copies_are_the_network(name, top_k):
    model = make_classifier(name)
    copies = copy_into_experts(model, 4, top_k)
    assert_same_output(model, copies)
    assert copies.config.expert_weighting == "softmax"
    assert copies.config.subnets == model.config.subnets
    inputs = tokens_of(type(model).__name__)
    with torch.no_grad():
        expected, actual = model(**inputs, subnet="small").logits, copies(**inputs, subnet="small").logits
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_every_class(model):
    assert_same_output(model, split_into_experts(model, 4, 4))
    assert_same_output(model, copy_into_experts(model, 2, 1))


def test_some_layers():
    model = make_classifier()
    split = split_into_experts(model, 8, 2, batches(), layers=[1, 3])
    kinds = [isinstance(layer.mlp, ElasticMLP) for layer in split.model.layers]
    assert kinds == [True, False, True, False]
    split.config.subnets = {"all": SubnetConfig(), "one": SubnetConfig(num_experts_per_tok=1)}
    again = split_into_experts(split, 4, 4, layers=[0, 2])
    assert [layer.mlp.num_experts for layer in again.model.layers] == [4, 8, 4, 8]
    assert_same_output(split, again)


def test_survives_saving_and_extraction(tmp_path):
    split = split_into_experts(make_classifier("modernbert"), 4, 2, batches(), layers=[0, 1, 2])
    split.save_pretrained(tmp_path)
    loaded, report = type(split).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert_same_output(split, loaded)
    size = SubnetConfig(layers=(1, 3), num_experts_per_tok=1)
    with split.use_subnet(size):
        assert_same_output(split, extract(split, size))


@pytest.mark.parametrize("gated", [False, True])
def test_finds_the_parts_of_a_network_and_when_they_matter(gated):
    """Four groups of neurons, shuffled, each of which is active where one of four hidden units is large."""
    model = make_classifier(norm_position="pre", hidden_act="relu", gated_mlp=gated)
    layer = model.model.layers[0]
    group = torch.randperm(64, generator=torch.Generator().manual_seed(0)) % 4
    with torch.no_grad():
        layer.mlp_norm.weight.fill_(1)
        layer.mlp_norm.bias.zero_()
        for projection in (layer.mlp.up_proj, layer.mlp.gate_proj if gated else layer.mlp.up_proj):
            projection.weight.copy_(3 * torch.eye(32)[group] + 0.01 * projection.weight)
            projection.bias.fill_(-3.0)
    split = split_into_experts(model, 4, 1, layers=[0])
    moe = split.model.layers[0].mlp
    weight = moe.experts.gate_up_proj[:, ::2] if gated else moe.experts.up_proj
    found = weight[..., :4].mean(dim=1).argmax(dim=1)
    assert sorted(found.tolist()) == [0, 1, 2, 3]
    assert (weight[..., :4].argmax(dim=-1) == found[:, None]).all()

    tokens = layer.mlp_norm(torch.randn(500, 32, generator=torch.Generator().manual_seed(1)))
    with torch.no_grad():
        _, _, chosen = moe.router(tokens, 4, 1)
    largest = tokens[:, :4].argmax(dim=1)
    clear = tokens[:, :4].max(dim=1).values > 1.5
    assert (found[chosen[:, 0]] == largest)[clear].float().mean() > 0.9


def test_neurons_keep_their_order_and_experts_are_ranked():
    model = make_classifier()
    mlp = model.model.layers[2].mlp
    with torch.no_grad():
        mlp.up_proj.bias.copy_(torch.arange(64) / 640)
        mlp.down_proj.weight[:, ::2] *= 5
    moe = split_into_experts(model, 4, 2, batches()).model.layers[2].mlp
    assert (moe.experts.up_proj_bias.diff(dim=1) > 0).all()
    tokens = torch.cat([make_inputs_of_mlp(model, 2, batch) for batch in batches()])
    neurons = torch.nn.functional.gelu(
        torch.einsum("th,eih->eti", tokens, moe.experts.up_proj) + moe.experts.up_proj_bias[:, None]
    )
    energy = torch.einsum("eti,ehi->eth", neurons, moe.experts.down_proj).square().sum(-1)
    parts = (energy / energy.sum(0)).mean(1)
    assert (parts.diff() <= 1e-5).all()


def make_inputs_of_mlp(model, layer, batch):
    seen = []
    handle = model.model.layers[layer].mlp.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model(**batch)
    handle.remove()
    return seen[0][batch["attention_mask"].bool()]


def test_padding_is_left_out_and_mode_restored():
    model = make_classifier().train()
    (batch,) = batches(1)
    padded = {name: value for name, value in batch.items() if name != "labels"}
    padded["input_ids"] = padded["input_ids"].masked_fill(padded["attention_mask"] == 0, 7)
    one = split_into_experts(model, 4, 2, [batch])
    other = split_into_experts(model, 4, 2, [padded | {"unpad_inputs": True}])
    assert model.training and one.training
    for name, weight in one.state_dict().items():
        torch.testing.assert_close(weight, other.state_dict()[name])


def test_max_batches():
    one = split_into_experts(make_classifier(), 4, 2, batches(3), max_batches=1).state_dict()
    other = split_into_experts(make_classifier(), 4, 2, batches(1)).state_dict()
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())


def test_routers_and_experts_train():
    model = split_into_experts(make_classifier(), 4, 2, batches()).train()
    model(**batches(1)[0]).loss.backward()
    moe = model.model.layers[0].mlp
    assert moe.router.weight.grad.any() and moe.experts.up_proj.grad.any() and moe.bias.grad.any()


def test_bfloat16():
    model = make_classifier().to(torch.bfloat16)
    split = split_into_experts(model, 4, 2, batches())
    assert {weight.dtype for weight in split.state_dict().values()} == {torch.bfloat16}


@pytest.mark.parametrize("function", [split_into_experts, copy_into_experts])
def test_errors_come_first_and_name_the_value(function):
    model = make_classifier()
    for number in (1, 128, 2.0):
        with pytest.raises(ValueError, match=f"num_experts={number} must be a whole number from 2 to 64"):
            function(model, number, 1)
    with pytest.raises(ValueError, match="num_experts_per_tok=5 must be a whole number from 1 to 4"):
        function(model, 4, 5)
    with pytest.raises(ValueError, match="layer 4 does not exist"):
        function(model, 4, 2, layers=[0, 4])
    with pytest.raises(ValueError, match="Layer 1 has 4 experts already"):
        function(function(model, 4, 2, layers=[1]), 4, 2)
    with pytest.raises(ValueError, match=r"layers=\[0\]: layers \[1\] share the weights of some of them, add them"):
        function(make_classifier("shared"), 4, 2, layers=[0])
    with pytest.raises(TypeError, match="convert it first"):
        function(torch.nn.Linear(2, 2), 4, 2)


def test_experts_that_do_not_divide_the_network():
    def unread():
        raise AssertionError("the data was read before the check")
        yield

    message = r"num_experts=5 does not divide intermediate_size=64 of layer 0: possible are \[2, 4, 8, 16, 32, 64\]"
    with pytest.raises(ValueError, match=message):
        split_into_experts(make_classifier(), 5, 2, unread())


def test_mixed_weightings():
    with pytest.raises(ValueError, match="expert_weighting='softmax': others in the same model would need 'unit'"):
        split_into_experts(copy_into_experts(make_classifier(), 4, 2, layers=[1]), 4, 2, layers=[0])


def test_a_single_token_is_enough():
    split = split_into_experts(make_classifier(), 4, 2, [{"input_ids": torch.tensor([[7]])}])
    assert all(weight.isfinite().all() for weight in split.state_dict().values())


@pytest.mark.parametrize(
    ("dataloader", "max_batches", "message"),
    [
        ([{"input_ids": [[1, 2]]}], None, r"A batch has input_ids=\[\[1, 2\]\]: each value must be a tensor"),
        ({"input_ids": torch.ones(1, 2)}, None, "The dataloader gives a str: give a list of batches"),
        ([], -1, "max_batches=-1 must be a whole number of at least 1"),
    ],
)
def test_what_is_no_data_is_named(dataloader, max_batches, message):
    with pytest.raises((ValueError, TypeError), match=message):
        split_into_experts(make_classifier(), 4, 2, dataloader, max_batches=max_batches)


def test_no_data():
    with pytest.raises(ValueError, match="gives no batch"):
        split_into_experts(make_classifier(), 4, 2, [])
