"""Mixtures of experts: feed-forward networks of which each token goes through a few.

What is distinctive: a sub-network runs leading experts, leading neurons of each and leading hidden units, all as views
of the same weights; and no token is dropped, because experts have no capacity. The experts stand in the layout of
transformers' experts interface, so that its implementations (`experts_implementation`) run them as well.
"""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.utils.generic import maybe_autocast

from .configuration_elastic import ElasticConfig
from .subnet_elastic import LayerSize


class ElasticRouter(nn.Module):
    """Chooses the experts of each token, and what each one's output counts.

    With `expert_weighting="softmax"`, the outputs count with the probabilities of the chosen experts, renormalized to
    sum to one (Mixtral, Jiang et al. 2024, https://arxiv.org/abs/2401.04088): experts that are copies of one network
    give this network's output. With `"unit"` each one counts exactly once: experts that are the parts of one network
    add up to its output. These constant weights take the gradient of others (a straight-through estimator, Bengio et
    al. 2013, https://arxiv.org/abs/1308.3432): of the renormalized probabilities times their number, which have the
    same sum and say which of the chosen experts should have the larger part. A single expert, whose renormalized
    probability is constant under either weighting, takes the gradient of its probability among all experts.

    A small error in the logits may be another choice. Autocast leaves them as precise as the weight therefore, and the
    weight is a parameter of this module rather than a linear layer, which quantization would round.
    """

    def __init__(self, config: ElasticConfig, size: LayerSize):
        super().__init__()
        self.weighting = config.expert_weighting
        self.weight = nn.Parameter(torch.empty(size.num_experts, config.hidden_size))

    def forward(
        self, hidden_states: torch.Tensor, num_experts: int, num_experts_per_tok: int
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Routes tokens to some of the leading experts.

        Args:
            hidden_states (`torch.Tensor` of shape `(tokens, hidden_size)`):
                The tokens.
            num_experts (`int`):
                Number of leading experts to choose from.
            num_experts_per_tok (`int`):
                Number of experts of each token.

        Returns:
            `tuple` of the logits of shape `(tokens, num_experts)`, and the weights and the indices of the chosen
            experts, both of shape `(tokens, num_experts_per_tok)`, the most probable first, the weights in single
            precision at least. If there is no choice because all are chosen, they stand in their own order, and
            weights of one are left out (`None`).
        """
        weight = self.weight[:num_experts, : hidden_states.shape[-1]]
        with maybe_autocast(hidden_states.device.type, enabled=False):
            logits = nn.functional.linear(hidden_states.to(weight.dtype), weight)
        scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if num_experts_per_tok == num_experts:
            index = torch.arange(num_experts, device=scores.device).expand_as(scores)
            return logits, scores.softmax(dim=-1) if self.weighting == "softmax" else None, index
        chosen, index = scores.topk(num_experts_per_tok, dim=-1)
        if num_experts_per_tok == 1:
            probabilities = (chosen - scores.logsumexp(dim=-1, keepdim=True)).exp()
        else:
            probabilities = chosen.softmax(dim=-1)
            if self.weighting == "softmax":
                return logits, probabilities, index
        relaxed = num_experts_per_tok * probabilities
        return logits, 1 + (relaxed - relaxed.detach()), index


class ExpertWeights:
    """What transformers' expert functions read of experts: their weights, and how these are laid out.

    The decorator `use_experts_implementation`, which usually says the latter, says it once per class; here it depends
    on the configuration. A gated expert has the two rows of a neuron, gate and up, next to each other, so that leading
    neurons are leading rows.
    """

    is_transposed = False
    is_concatenated = False
    has_post_expert_norm = False
    _is_expert_parallel = False
    num_experts: int
    has_gate: bool
    has_bias: bool
    act_fn: nn.Module
    down_proj: torch.Tensor

    @property
    def down_proj_bias(self) -> torch.Tensor:
        """Zeros, for the functions that expect a second bias: [`ElasticMoE`] adds one for all experts together."""
        return self.down_proj.new_zeros(()).expand(self.down_proj.shape[:2])

    @property
    def first_name(self) -> str:
        """Name of the first layer's weights; `_bias` follows it in that of its biases."""
        return "gate_up_proj" if self.has_gate else "up_proj"

    def first_layer(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Gives the weights of shape `(experts, rows, hidden_size)` and the biases of shape `(experts, rows)`."""
        bias = getattr(self, f"{self.first_name}_bias") if self.has_bias else None
        return getattr(self, self.first_name), bias

    def activate(self, rows: torch.Tensor) -> torch.Tensor:
        """Turns the first layer's outputs into the neurons' activations."""
        return self._apply_gate(rows) if self.has_gate else self.act_fn(rows)

    def _apply_gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        return self.act_fn(gate_up[..., ::2]) * gate_up[..., 1::2]


class LeadingExperts(ExpertWeights):
    """Views of the leading experts, neurons and hidden units, under the names that the whole has.

    Under autocast they are copies in its data type, as grouped matrix products know nothing of autocast.
    """

    def __init__(self, experts: ExpertWeights, shape: tuple[int, int, int], dtype: torch.dtype):
        self.num_experts, hidden_size, intermediate_size = shape
        self.has_gate, self.has_bias, self.act_fn = experts.has_gate, experts.has_bias, experts.act_fn
        rows = (2 if self.has_gate else 1) * intermediate_size
        weight, bias = experts.first_layer()
        setattr(self, self.first_name, weight[: self.num_experts, :rows, :hidden_size].to(dtype))
        if bias is not None:
            setattr(self, f"{self.first_name}_bias", bias[: self.num_experts, :rows].to(dtype))
        self.down_proj = experts.down_proj[: self.num_experts, :hidden_size, :intermediate_size].to(dtype)


class ElasticExperts(ExpertWeights, nn.Module):
    """The experts of a layer, without the bias of their outputs."""

    def __init__(self, config: ElasticConfig, size: LayerSize):
        nn.Module.__init__(self)
        self.config = config
        self.num_experts = size.num_experts
        self.has_gate = config.gated_mlp
        self.has_bias = config.mlp_bias
        self.act_fn = ACT2FN[config.hidden_act]
        rows = (2 if self.has_gate else 1) * size.intermediate_size
        weight = torch.empty(size.num_experts, rows, config.hidden_size)
        self.register_parameter(self.first_name, nn.Parameter(weight))
        if self.has_bias:
            self.register_parameter(f"{self.first_name}_bias", nn.Parameter(torch.empty(size.num_experts, rows)))
        self.down_proj = nn.Parameter(torch.empty(size.num_experts, config.hidden_size, size.intermediate_size))

    def forward(
        self,
        hidden_states: torch.Tensor,
        top_k_index: torch.Tensor,
        top_k_weights: torch.Tensor | None,
        num_experts: int,
        intermediate_size: int,
    ) -> torch.Tensor:
        """Sums up the weighted outputs of the experts of each token.

        Args:
            hidden_states (`torch.Tensor` of shape `(tokens, hidden_size)`):
                The tokens, with all hidden units or the leading ones.
            top_k_index, top_k_weights (`torch.Tensor` of shape `(tokens, num_experts_per_tok)`):
                What [`ElasticRouter`] gives.
            num_experts (`int`):
                Number of leading experts that were chosen from.
            intermediate_size (`int`):
                Number of leading neurons of each expert that run.

        Returns:
            `torch.Tensor` of shape `(tokens, hidden_size)`.
        """
        experts: ExpertWeights = self
        shape = (num_experts, hidden_states.shape[-1], intermediate_size)
        dtype, device_type = self.down_proj.dtype, hidden_states.device.type
        if torch.is_autocast_enabled(device_type):
            dtype = torch.get_autocast_dtype(device_type)
        if shape != self.down_proj.shape or dtype != self.down_proj.dtype:
            experts = LeadingExperts(self, shape, dtype)
        if top_k_index.shape[-1] == num_experts:
            return all_experts_forward(experts, hidden_states, top_k_weights)
        run = ALL_EXPERTS_FUNCTIONS.get_interface(self.config._experts_implementation, sparse_experts_forward)
        return run(experts, hidden_states, top_k_index, top_k_weights)


class ElasticMoE(nn.Module):
    """Feed-forward experts behind a router, in the place of one feed-forward network.

    Args:
        config ([`ElasticConfig`]):
            Configuration of the model.
        size ([`LayerSize`]):
            Size of the layer: its experts, those that a token goes through, and the neurons of each expert.

    Attributes:
        bias (`torch.nn.Parameter` of shape `(hidden_size,)`, *optional*): Added once, however many experts are active,
            as in the network that was split into them. For copies, whose weights sum to one, it is the bias of each.
    """

    def __init__(self, config: ElasticConfig, size: LayerSize):
        super().__init__()
        self.num_experts = size.num_experts
        self.num_experts_per_tok = size.num_experts_per_tok
        self.intermediate_size = size.intermediate_size
        self.router = ElasticRouter(config, size)
        self.experts = ElasticExperts(config, size)
        self.bias = nn.Parameter(torch.empty(config.hidden_size)) if config.mlp_bias else None

    def forward(
        self,
        hidden_states: torch.Tensor,
        intermediate_size: int | None = None,
        num_experts: int | None = None,
        num_experts_per_tok: int | None = None,
    ) -> torch.Tensor:
        """Runs the experts that the router chooses.

        Args:
            hidden_states (`torch.Tensor` of shape `(..., hidden_size)`):
                All hidden units or the leading ones.
            intermediate_size (`int`, *optional*):
                Number of leading neurons of each expert; the layer's own by default.
            num_experts (`int`, *optional*):
                Number of leading experts; the layer's own by default.
            num_experts_per_tok (`int`, *optional*):
                Number of experts of each token; the layer's own by default, or all experts if these are fewer.

        Returns:
            `torch.Tensor` of the shape of `hidden_states`.
        """
        intermediate_size = intermediate_size or self.intermediate_size
        num_experts = num_experts or self.num_experts
        num_experts_per_tok = num_experts_per_tok or min(self.num_experts_per_tok, num_experts)
        tokens = hidden_states.reshape(-1, hidden_states.shape[-1])
        _, weights, index = self.router(tokens, num_experts, num_experts_per_tok)
        output = self.experts(tokens, index, weights, num_experts, intermediate_size)
        if self.bias is not None:
            output = output + self.bias[: output.shape[-1]]
        return output.view(hidden_states.shape)


def all_experts_forward(
    experts: ExpertWeights, hidden_states: torch.Tensor, weights: torch.Tensor | None
) -> torch.Tensor:
    """Runs all experts as the one wide network that they are together.

    Args:
        experts ([`ExpertWeights`]):
            The experts.
        hidden_states (`torch.Tensor` of shape `(tokens, hidden_size)`):
            The tokens.
        weights (`torch.Tensor` of shape `(tokens, num_experts)`, *optional*):
            What each expert's output counts, in the order of the experts; one each by default.
    """
    weight, bias = experts.first_layer()
    rows = nn.functional.linear(hidden_states, weight.flatten(0, 1), None if bias is None else bias.flatten())
    neurons = experts.activate(rows)
    if weights is not None:
        neurons = neurons.unflatten(-1, (experts.num_experts, -1)) * weights.unsqueeze(-1).to(neurons.dtype)
        neurons = neurons.flatten(1)
    output = nn.functional.linear(neurons, experts.down_proj.transpose(0, 1).flatten(1))
    return output.to(hidden_states.dtype)


def sparse_experts_forward(
    experts: ExpertWeights,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """Runs for each token its experts alone: what `experts_implementation="eager"` means here.

    On a CPU each expert's tokens go through it in turn, which is a sixth faster there than a grouped matrix product.
    Elsewhere, and in compiled code, which could not trace how many tokens an expert has, it is transformers'
    `"grouped_mm"`.

    Args:
        experts ([`ExpertWeights`]):
            The experts.
        hidden_states (`torch.Tensor` of shape `(tokens, hidden_size)`):
            The tokens.
        top_k_index, top_k_weights (`torch.Tensor` of shape `(tokens, num_experts_per_tok)`):
            The experts of each token, and what their outputs count.
    """
    if hidden_states.device.type != "cpu" or torch.compiler.is_compiling():
        return ALL_EXPERTS_FUNCTIONS["grouped_mm"](experts, hidden_states, top_k_index, top_k_weights)
    top_k = top_k_index.shape[-1]
    order = top_k_index.flatten().argsort(stable=True)
    counts = top_k_index.flatten().bincount(minlength=experts.num_experts).tolist()
    tokens = order // top_k
    weight, bias = experts.first_layer()
    # `unbind` rather than an index per expert, whose gradients would each have the size of all experts' weights.
    networks = zip(
        weight.unbind(),
        [None] * experts.num_experts if bias is None else bias.unbind(),
        experts.down_proj.unbind(),
        tokens.split(counts),
        hidden_states.index_select(0, tokens).split(counts),
        top_k_weights.flatten().index_select(0, order).unsqueeze(1).split(counts),
        strict=True,
    )
    output = torch.zeros_like(hidden_states)
    for up, up_bias, down, positions, states, counted in networks:
        neurons = experts.activate(nn.functional.linear(states, up, up_bias))
        output.index_add_(0, positions, (nn.functional.linear(neurons, down) * counted).to(output.dtype))
    return output


def init_experts(moe: ElasticMoE, std: float) -> None:
    """Initializes router, experts and bias; for `_init_weights`, which leaves weights that were loaded as they are.

    Args:
        moe ([`ElasticMoE`]):
            The module.
        std (`float`):
            Standard deviation of the weights; biases are zero.
    """
    for name, parameter in moe.named_parameters():
        if name.endswith("bias"):
            init.zeros_(parameter)
        else:
            init.normal_(parameter, mean=0.0, std=std)


def load_balancing_loss(
    router_logits: Sequence[torch.Tensor],
    num_experts_per_tok: Sequence[int],
    token_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Loss that makes routers send each expert an equal part of the tokens.

    For each layer, the number of experts times the sum over experts of the part of all assignments that an expert gets
    times its mean probability. The least is 1, whatever the number of experts and of those that a token goes through;
    one expert that gets everything has as much as there are experts.

    Args:
        router_logits (`Sequence[torch.Tensor]`):
            The logits of each layer, of shape `(tokens, experts)`.
        num_experts_per_tok (`Sequence[int]`):
            The number of experts of each token, for each layer.
        token_mask (`torch.Tensor` with an entry per token, *optional*):
            True or 1 for tokens, False or 0 for padding, which does not count.

    Returns:
        `torch.Tensor`: The mean over layers, a scalar.

    References:
        Fedus et al. 2021, Switch Transformers (https://arxiv.org/abs/2101.03961); more than one expert per token:
        Lepikhin et al. 2020, GShard (https://arxiv.org/abs/2006.16668).
    """
    losses = []
    for logits, top_k in zip(router_logits, num_experts_per_tok, strict=True):
        probabilities = logits.float().softmax(dim=-1)
        chosen = torch.zeros_like(probabilities).scatter(-1, logits.topk(top_k, dim=-1).indices, 1 / top_k)
        load = _token_mean(chosen, token_mask)
        losses.append(logits.shape[-1] * (load * _token_mean(probabilities, token_mask)).sum())
    return torch.stack(losses).mean()


def router_z_loss(router_logits: Sequence[torch.Tensor], token_mask: torch.Tensor | None = None) -> torch.Tensor:
    """Loss that keeps router logits small, where rounding them does not change the choice.

    Args:
        router_logits (`Sequence[torch.Tensor]`):
            The logits of each layer, of shape `(tokens, experts)`.
        token_mask (`torch.Tensor` with an entry per token, *optional*):
            True or 1 for tokens, False or 0 for padding, which does not count.

    Returns:
        `torch.Tensor`: The squared logarithm of the sum of the logits' exponentials, as a mean over tokens and layers.

    References:
        Zoph et al. 2022, ST-MoE (https://arxiv.org/abs/2202.08906)
    """
    losses = [_token_mean(logits.float().logsumexp(dim=-1).square(), token_mask) for logits in router_logits]
    return torch.stack(losses).mean()


def _token_mean(values: torch.Tensor, token_mask: torch.Tensor | None) -> torch.Tensor:
    if token_mask is None:
        return values.mean(dim=0)
    is_token = token_mask.flatten().to(values.dtype)
    return torch.tensordot(is_token, values, dims=1) / is_token.sum().clamp(min=1)


__all__ = ["ElasticExperts", "ElasticMoE", "ElasticRouter", "init_experts", "load_balancing_loss", "router_z_loss"]
