import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hf_elastic import ElasticConfig
from hf_elastic.modeling.experts_elastic import ElasticMoE, init_experts, load_balancing_loss, router_z_loss
from hf_elastic.modeling.subnet_elastic import LayerSize

HIDDEN, NEURONS, EXPERTS = 32, 16, 4


def make_moe(num_experts_per_tok=2, num_experts=EXPERTS, implementation="eager", **settings):
    settings = {"hidden_size": HIDDEN, "num_attention_heads": 4, "intermediate_size": NEURONS} | settings
    settings = {"expert_weighting": "unit"} | settings
    config = ElasticConfig(**settings)
    config._experts_implementation = implementation
    size = LayerSize(0, 4, config.intermediate_size, config.hidden_size, num_experts, num_experts_per_tok)
    moe = ElasticMoE(config, size)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in moe.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return moe


def make_tokens(*shape, seed=1):
    return torch.randn(*(shape or (3, 7)), HIDDEN, generator=torch.Generator().manual_seed(seed))


def run_expert(moe, expert, tokens):
    """One expert as the feed-forward network that it is, with the shared bias left out."""
    experts = moe.experts
    if experts.has_gate:
        weight, bias = experts.gate_up_proj[expert], experts.gate_up_proj_bias[expert] if experts.has_bias else None
        gate, up = nn.functional.linear(tokens, weight, bias).unflatten(-1, (-1, 2)).unbind(-1)
        neurons = nn.functional.gelu(gate) * up
    else:
        bias = experts.up_proj_bias[expert] if experts.has_bias else None
        neurons = nn.functional.gelu(nn.functional.linear(tokens, experts.up_proj[expert], bias))
    return neurons @ experts.down_proj[expert].T


def expected_output(moe, tokens, top_k):
    """Every expert on every token, weighted by what the router says."""
    logits = tokens @ moe.router.weight.T
    chosen, index = logits.topk(top_k, dim=-1)
    weights = chosen.softmax(-1) if moe.router.weighting == "softmax" else torch.ones_like(chosen)
    weights = torch.zeros_like(logits).scatter(-1, index, weights)
    output = sum(weights[..., [expert]] * run_expert(moe, expert, tokens) for expert in range(moe.num_experts))
    return output if moe.bias is None else output + moe.bias


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm", "batched_mm"])
@pytest.mark.parametrize("top_k", [1, 2, EXPERTS])
@pytest.mark.parametrize("weighting", ["unit", "softmax"])
@pytest.mark.parametrize("settings", [{}, {"gated_mlp": True}, {"gated_mlp": True, "mlp_bias": False}])
def test_output_and_gradients_are_those_of_all_experts_masked(implementation, top_k, weighting, settings):
    moe = make_moe(top_k, implementation=implementation, expert_weighting=weighting, **settings)
    tokens = make_tokens()
    output, expected = moe(tokens), expected_output(moe, tokens, top_k)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    weights = [parameter for name, parameter in moe.named_parameters() if "router" not in name]
    got = torch.autograd.grad(output.square().sum(), weights)
    for gradient, reference in zip(got, torch.autograd.grad(expected.square().sum(), weights), strict=True):
        torch.testing.assert_close(gradient, reference, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm", "batched_mm"])
@pytest.mark.parametrize("gated", [False, True])
def test_leading_slices_are_a_smaller_module(implementation, gated):
    moe = make_moe(implementation=implementation, gated_mlp=gated)
    small = make_moe(2, 3, implementation, gated_mlp=gated, hidden_size=24, intermediate_size=8)
    with torch.no_grad():
        for name, parameter in small.named_parameters():
            full = moe.get_parameter(name)
            parameter.copy_(full[tuple(slice(length) for length in parameter.shape)])
    tokens = make_tokens()[..., :24]
    output = moe(tokens, intermediate_size=8, num_experts=3, num_experts_per_tok=2)
    torch.testing.assert_close(output, small(tokens), atol=1e-6, rtol=0)
    output.square().sum().backward()
    small(tokens).square().sum().backward()
    for name, parameter in small.named_parameters():
        gradient = moe.get_parameter(name).grad
        kept = tuple(slice(length) for length in parameter.shape)
        torch.testing.assert_close(gradient[kept], parameter.grad, atol=1e-5, rtol=1e-5)
        outside = gradient.clone()
        outside[kept] = 0
        assert not outside.any()


def test_fewer_experts_than_are_active_are_all_active():
    moe, tokens = make_moe(num_experts_per_tok=3), make_tokens()
    expected = run_expert(moe, 0, tokens) + run_expert(moe, 1, tokens) + moe.bias
    torch.testing.assert_close(moe(tokens, num_experts=2), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("gated", [False, True])
def test_all_experts_of_unit_weight_are_the_dense_network(gated):
    moe, tokens = make_moe(num_experts_per_tok=EXPERTS, gated_mlp=gated), make_tokens()
    experts = moe.experts
    if gated:
        rows = nn.functional.linear(tokens, experts.gate_up_proj.flatten(0, 1), experts.gate_up_proj_bias.flatten())
        neurons = nn.functional.gelu(rows[..., ::2]) * rows[..., 1::2]
    else:
        rows = nn.functional.linear(tokens, experts.up_proj.flatten(0, 1), experts.up_proj_bias.flatten())
        neurons = nn.functional.gelu(rows)
    dense = nn.functional.linear(neurons, experts.down_proj.transpose(0, 1).flatten(1), moe.bias)
    torch.testing.assert_close(moe(tokens), dense, atol=1e-6, rtol=0)


@pytest.mark.parametrize("weighting", ["softmax", "unit"])
@pytest.mark.parametrize("top_k", [1, 2, EXPERTS])
def test_copies_of_a_network_give_its_output(weighting, top_k):
    moe, tokens = make_moe(top_k, expert_weighting=weighting), make_tokens()
    with torch.no_grad():
        for parameter in moe.experts.parameters():
            parameter.copy_(parameter[:1].expand_as(parameter))
    count = top_k if weighting == "unit" else 1
    torch.testing.assert_close(moe(tokens), count * run_expert(moe, 0, tokens) + moe.bias, atol=1e-5, rtol=1e-5)


def test_unit_weights_are_exactly_one_whatever_the_router_says():
    for scale in (1e-3, 1.0, 1e3):
        moe = make_moe()
        with torch.no_grad():
            moe.router.weight.mul_(scale)
        _, weights, _ = moe.router(make_tokens(500), EXPERTS, 2)
        assert (weights == 1).all()


@pytest.mark.parametrize(("weighting", "top_k"), [("unit", 1), ("unit", 2), ("unit", 3), ("softmax", 1)])
def test_straight_through_gradient(weighting, top_k):
    moe, tokens = make_moe(top_k, expert_weighting=weighting), make_tokens(20)
    (gradient,) = torch.autograd.grad(moe(tokens).square().sum(), moe.router.weight)
    with torch.no_grad():
        outputs = torch.stack([run_expert(moe, expert, tokens) for expert in range(EXPERTS)], dim=1)
        gains = torch.einsum("th,teh->te", 2 * moe(tokens), outputs)
    probabilities = (tokens @ moe.router.weight.T).softmax(-1)
    active = torch.zeros_like(probabilities).scatter(-1, probabilities.topk(top_k).indices, 1.0)
    weights = active * probabilities
    if top_k > 1:
        weights = top_k * weights / weights.sum(-1, keepdim=True)
    (expected,) = torch.autograd.grad((gains * weights).sum(), moe.router.weight)
    assert expected.abs().max() > 0
    torch.testing.assert_close(gradient, expected, atol=1e-4, rtol=1e-4)


def test_router_learns_which_expert_helps():
    moe, tokens = make_moe(num_experts_per_tok=1), make_tokens(200)
    best = (tokens[:, 0] > 0).long()
    with torch.no_grad():
        target = (
            torch.stack([run_expert(moe, expert, tokens) for expert in (0, 1)])[best, torch.arange(200)] + moe.bias
        )
    optimizer = torch.optim.Adam([moe.router.weight], lr=0.05)
    losses = []
    for _ in range(200):
        loss = (moe(tokens) - target).square().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm", "batched_mm"])
def test_experts_without_tokens_get_zero_gradient(implementation):
    moe, tokens = make_moe(num_experts_per_tok=1, implementation=implementation), make_tokens().abs()
    with torch.no_grad():
        moe.router.weight.fill_(-1.0)
        moe.router.weight[2] = 1.0
    output = moe(tokens)
    torch.testing.assert_close(output, run_expert(moe, 2, tokens) + moe.bias, atol=1e-5, rtol=1e-5)
    output.sum().backward()
    for expert in range(EXPERTS):
        assert bool(moe.experts.down_proj.grad[expert].any()) == (expert == 2)


def test_no_tokens():
    assert make_moe()(torch.empty(2, 0, HIDDEN)).shape == (2, 0, HIDDEN)


@pytest.mark.parametrize("top_k", [2, EXPERTS])
@pytest.mark.parametrize("implementation", ["eager", "grouped_mm", "batched_mm"])
def test_autocast_and_low_precision_weights(implementation, top_k):
    moe, tokens = make_moe(top_k, implementation=implementation, expert_weighting="softmax"), make_tokens()
    expected = moe(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        output = moe(tokens)
        logits, *_ = moe.router(tokens.flatten(0, 1), EXPERTS, top_k)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(output, expected, atol=0.1, rtol=0.1)
    output.sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in moe.parameters())
    moe = moe.to(torch.bfloat16)
    output = moe(tokens.to(torch.bfloat16))
    assert output.dtype == torch.bfloat16
    # A token whose two best experts are all but equal may go to another one.
    close = torch.isclose(output.float(), expected, atol=0.1, rtol=0.1).float().mean()
    assert close > 0.8


def test_activation_checkpointing_gives_the_same_gradients():
    moe, tokens = make_moe(), make_tokens()
    expected = torch.autograd.grad(moe(tokens).square().sum(), moe.parameters())
    output = checkpoint(moe, tokens, use_reentrant=False)
    for gradient, reference in zip(
        torch.autograd.grad(output.square().sum(), moe.parameters()), expected, strict=True
    ):
        torch.testing.assert_close(gradient, reference)


@pytest.mark.parametrize("sizes", [(), (8, 3, 2), (None, None, EXPERTS)])
def test_compiles_without_a_graph_break(sizes):
    moe = make_moe(gated_mlp=True)
    torch._dynamo.reset()
    compiled = torch.compile(moe, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (7, 9):
        tokens = make_tokens(3, length)
        torch.testing.assert_close(compiled(tokens, *sizes), moe(tokens, *sizes), atol=1e-5, rtol=1e-5)
    compiled(tokens, *sizes).sum().backward()
    assert moe.experts.down_proj.grad.any()


def test_unknown_implementation_is_named():
    with pytest.raises(KeyError, match="quantum_mm"):
        make_moe(implementation="quantum_mm")(make_tokens())


def test_initialization_leaves_loaded_weights():
    moe = make_moe()
    moe.experts.down_proj._is_hf_initialized = True
    loaded = moe.experts.down_proj.clone()
    torch.manual_seed(0)
    init_experts(moe, std=0.02)
    assert torch.equal(moe.experts.down_proj, loaded)
    assert not moe.bias.any() and not moe.experts.up_proj_bias.any()
    assert 0.015 < moe.experts.up_proj.std() < 0.025
    assert 0.01 < moe.router.weight.std() < 0.03


@pytest.mark.parametrize("top_k", [1, 2])
def test_load_balancing_loss_is_one_at_balance_and_grows(top_k):
    balanced = 9 * torch.stack([torch.eye(4).roll(shift, dims=1) for shift in range(2)]).sum(0)
    assert load_balancing_loss([balanced], [top_k]).item() == pytest.approx(1, abs=1e-3)
    collapsed = torch.tensor([[50.0, 0, 0, 0]]).expand(8, 4)
    assert load_balancing_loss([collapsed], [1]).item() == pytest.approx(4, abs=1e-3)
    assert load_balancing_loss([balanced, collapsed], [top_k, 1]).item() == pytest.approx(2.5, abs=1e-3)


def test_load_balancing_gradient_moves_tokens_from_the_full_expert():
    logits = torch.tensor([[1.0, 0, 0, 0]]).repeat(8, 1).requires_grad_()
    load_balancing_loss([logits], [1]).backward()
    assert (logits.grad[:, 0] > 0).all() and (logits.grad[:, 1:] < 0).all()


@pytest.mark.parametrize("loss", [lambda logits, mask: load_balancing_loss(logits, [2, 1], mask), router_z_loss])
def test_padding_does_not_count(loss):
    generator = torch.Generator().manual_seed(0)
    logits = [torch.randn(6, 4, generator=generator), torch.randn(6, 8, generator=generator)]
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    expected = loss([each[mask.flatten().bool()] for each in logits], None)
    torch.testing.assert_close(loss(logits, mask), expected)
    torch.testing.assert_close(loss(logits, mask.bool()), expected)
    assert loss(logits, torch.zeros_like(mask)).item() == 0


def test_router_z_loss():
    logits = torch.tensor([[0.0, 0.0], [3.0, 3.0]])
    log_two = torch.tensor(2.0).log()
    torch.testing.assert_close(router_z_loss([logits]), (log_two**2 + (3 + log_two) ** 2) / 2)
