"""The proximal step against the formula, written out for single groups."""

import pytest
import torch

from hf_elastic import SubnetConfig, extract, rank
from hf_elastic.training.group_lasso import GroupLasso, unit_weights
from tests.training.cases import collate, make_model, make_rows, make_trainer

RATE, STRENGTH = 0.5, 0.04


def shrink(model: torch.nn.Module, strength: float = STRENGTH) -> None:
    """As after a step whose gradients were zero, of a head that learns faster."""
    optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": [torch.zeros(1)], "lr": 9.0}], lr=RATE)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    GroupLasso(strength).on_optimizer_step(None, None, None, model=model, optimizer=optimizer)


def of_head(layer: torch.nn.Module, head: int, dim: int) -> torch.Tensor:
    rows = slice(head * dim, (head + 1) * dim)
    attention = layer.attention
    parts = [part for name in "qkv" for part in getattr(attention, f"{name}_proj").parameters()]
    parts = [part[rows] for part in parts] + [attention.o_proj.weight[:, rows]]
    return torch.cat([part.flatten() for part in parts]).detach()


def of_neuron(layer: torch.nn.Module, neuron: int) -> torch.Tensor:
    mlp = layer.mlp
    parts = [mlp.up_proj.weight[neuron], mlp.up_proj.bias[neuron, None], mlp.down_proj.weight[:, neuron]]
    return torch.cat(parts).detach()


def expected(group: torch.Tensor) -> torch.Tensor:
    return group * max(0.0, 1 - RATE * STRENGTH * len(group) ** 0.5 / group.norm().item())


def test_groups_shrink_by_the_formula():
    model = make_model("classification")
    dim, heads = model.config.head_dim, model.config.num_attention_heads
    layer = model.model.layers[1]
    before_heads = [of_head(layer, head, dim).clone() for head in range(heads)]
    before_neurons = [of_neuron(layer, neuron).clone() for neuron in range(8)]
    others = {n: p.clone() for n, p in model.state_dict().items() if "proj" not in n}
    shrink(model)
    for head, group in enumerate(before_heads):
        torch.testing.assert_close(of_head(layer, head, dim), expected(group))
    for neuron, group in enumerate(before_neurons):
        torch.testing.assert_close(of_neuron(layer, neuron), expected(group))
    assert all(torch.equal(model.state_dict()[name], value) for name, value in others.items())


def test_units_that_vanish_are_ranked_last_and_extracted_without_a_loss():
    model = make_model("classification").eval()
    layer = model.model.layers[0]
    dim = model.config.head_dim
    with torch.no_grad():
        for projection in (layer.attention.q_proj, layer.attention.k_proj, layer.attention.v_proj):
            projection.weight[:dim] *= 1e-3  # the first head
            projection.bias[:dim] *= 1e-3
        layer.attention.o_proj.weight[:, :dim] *= 1e-3
    shrink(model)
    assert of_head(layer, 0, dim).abs().max() == 0 and of_head(layer, 1, dim).abs().min() >= 0
    batch = collate(make_rows("classification", 8))
    logits = model(**batch).logits
    rank(model, [batch])
    heads = [model.config.num_attention_heads] * 4
    heads[0] -= 1
    smaller = extract(model, SubnetConfig(num_attention_heads=tuple(heads)))
    torch.testing.assert_close(smaller(**batch).logits, logits, rtol=1e-4, atol=1e-5)


def test_vanished_groups_stay_finite():
    model = make_model("classification")
    for _ in range(3):
        shrink(model, strength=100.0)
    assert all(weight.abs().max() == 0 for _, weights in unit_weights(model) for weight, _ in weights)


def test_experts_and_frozen_weights_are_left_alone():
    model = make_model("classification")
    model.model.layers[2].requires_grad_(False)
    before = [p.clone() for p in model.model.layers[2].parameters()]
    shrink(model)
    assert all(torch.equal(p, kept) for p, kept in zip(model.model.layers[2].parameters(), before, strict=True))


def test_an_optimizer_that_does_not_tell_its_rates_is_an_error(tmp_path):
    class LayerWise(torch.optim.SGD):
        """Steps in hooks of the backward pass, as those of transformers do, behind a group of nothing."""

        def __init__(self, params, lr):
            super().__init__([torch.zeros(0)], lr)

    trainer = make_trainer(
        tmp_path,
        settings={"group_penalty": 0.1, "max_steps": 1},
        optimizer_cls_and_kwargs=(LayerWise, {"lr": 0.1}),
    )
    with pytest.raises(ValueError, match="group_penalty=0.1 follows the learning rates.*'adamw_torch'"):
        trainer.train()


@pytest.mark.parametrize("strength", [0.0])
def test_no_strength_changes_nothing(strength):
    model = make_model("classification")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    shrink(model, strength)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
