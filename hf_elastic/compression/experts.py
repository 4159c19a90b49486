"""From a model with plain feed-forward networks to one with experts: the parts of each network, or copies of it."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn
from tqdm.auto import tqdm

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.layers_elastic import ElasticLayer, ElasticMLP
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import LayerSize, SubnetConfig
from .checks import check_max_batches, check_plain_weights, model_inputs
from .clusters import balanced_clusters
from .copies import load_copies
from .extract import member_config
from .units import layer_and_name

# Each token is scored against all experts, and each expert has to be a product that is worth starting.
MAX_EXPERTS = 64
# A few tokens for each neuron say enough of which are active together, and for each weight of a router.
MAX_TOKENS = 8192


@torch.inference_mode(False)  # a caller's would let no gradients through, which the routers are fitted with
def split_into_experts(
    model: ElasticPreTrainedModel,
    num_experts: int,
    num_experts_per_tok: int,
    dataloader: Iterable[Mapping[str, torch.Tensor]] | None = None,
    layers: Sequence[int] | None = None,
    max_batches: int | None = None,
) -> ElasticPreTrainedModel:
    """Splits feed-forward networks into experts, which together compute what the network does.

    Neurons that are active on the same tokens come into one expert. The router's probabilities are fitted to the parts
    that the experts have in the squared norm of the network's output, so that it picks those that matter from the
    start; the model has to be trained to make up for the others. Of neurons, the order within an expert is that of
    before; the experts are in the order of their mean part, the largest first.

    Args:
        model (`ElasticPreTrainedModel`):
            A model with plain feed-forward networks. It is left as it is.
        num_experts (`int`):
            Number of experts of a layer, usually 4 to 8, 64 at most. It has to divide the network's neurons.
        num_experts_per_tok (`int`):
            Number of experts that a token goes through; with all of them, the output is that of before. Smaller sizes
            may have fewer, see [`SubnetConfig`].
        dataloader (`Iterable[Mapping[str, torch.Tensor]]`, *optional*):
            Batches of real inputs, of which the first 8192 tokens are used. Without them, the inputs of the networks
            are drawn at random, as the norm before them gives them, which finds worse experts.
        layers (`Sequence[int]`, *optional*):
            Indices of the layers to split, all by default.
        max_batches (`int`, *optional*):
            Number of batches to use at most.

    Returns:
        `ElasticPreTrainedModel`: A model of the same class with `expert_weighting="unit"`. It has no named subnets, as
        the widths of the former's were those of whole networks; name new ones.

    Raises:
        TypeError: If the model is not elastic, or its weights are adapted or quantized.
        ValueError: If `num_experts` is not between 2 and 64 or does not divide a network, `num_experts_per_tok` is not
            between one and `num_experts`, a layer does not exist, has experts already or shares its weights with one
            that is left out, there is no batch, or one has something that is no tensor.

    References:
        Zhang et al. 2022, MoEfication (https://arxiv.org/abs/2110.01786)

    Example:
        >>> model = split_into_experts(convert("bert-base-uncased"), 8, 2, dataloader)
        >>> model.config.subnets = {"small": SubnetConfig(num_experts_per_tok=1)}
    """
    sizes = _sizes_with_experts(model, num_experts, num_experts_per_tok, layers, "unit")
    check_max_batches(max_batches)
    for size in sizes.values():
        if size.intermediate_size % num_experts:
            possible = [n for n in range(2, MAX_EXPERTS + 1) if size.intermediate_size % n == 0]
            raise ValueError(
                f"num_experts={num_experts} does not divide intermediate_size={size.intermediate_size} of layer "
                f"{size.layer}: possible are {possible}."
            )
    sizes = {
        index: size._replace(intermediate_size=size.intermediate_size // num_experts) for index, size in sizes.items()
    }
    config = _config_with_experts(model, sizes, "unit")
    modules = {size.weights: model.base_model.layers[size.weights] for size in sizes.values()}
    if dataloader is None:
        inputs = {number: _draw_inputs(layer, model) for number, layer in modules.items()}
    else:
        inputs = _collect_inputs(model, modules, itertools.islice(dataloader, max_batches))
    networks = {}
    for number, layer in tqdm(modules.items(), desc="Splitting", unit="layer"):
        networks[number] = _split(layer.mlp, num_experts, inputs[number])
    return _with_networks(model, config, networks)


def copy_into_experts(
    model: ElasticPreTrainedModel, num_experts: int, num_experts_per_tok: int, layers: Sequence[int] | None = None
) -> ElasticPreTrainedModel:
    """Makes every expert a copy of the feed-forward network, so that the output is that of before.

    The routers are random; the experts become different in training, as each sees other tokens.

    Args:
        model (`ElasticPreTrainedModel`):
            A model with plain feed-forward networks. It is left as it is.
        num_experts (`int`):
            Number of experts of a layer, 64 at most.
        num_experts_per_tok (`int`):
            Number of experts that a token goes through.
        layers (`Sequence[int]`, *optional*):
            Indices of the layers that get experts, all by default.

    Returns:
        `ElasticPreTrainedModel`: A model of the same class with `expert_weighting="softmax"`, and with the named
        subnets of the former.

    Raises:
        TypeError: If the model is not elastic, or its weights are adapted or quantized.
        ValueError: If `num_experts` is not between 2 and 64, `num_experts_per_tok` is not between one and
            `num_experts`, or a layer does not exist, has experts already or shares its weights with one that is left
            out.

    References:
        Komatsuzaki et al. 2023, Sparse Upcycling (https://arxiv.org/abs/2212.05055)

    Example:
        >>> model = copy_into_experts(convert("bert-base-uncased"), 4, 1, layers=[1, 3, 5, 7, 9, 11])
    """
    sizes = _sizes_with_experts(model, num_experts, num_experts_per_tok, layers, "softmax")
    config = _config_with_experts(model, sizes, "softmax")
    config.subnets = model.config.subnets
    networks = {}
    for size in sizes.values():
        mlp = model.base_model.layers[size.weights].mlp
        weight = mlp.up_proj.weight
        router = weight.new_empty(num_experts, weight.shape[1]).normal_(std=model.config.initializer_range)
        neurons = torch.arange(size.intermediate_size, device=weight.device).expand(num_experts, -1)
        networks[size.weights] = _expert_weights(mlp, neurons, router)
    return _with_networks(model, config, networks)


def _sizes_with_experts(
    model: ElasticPreTrainedModel,
    num_experts: int,
    num_experts_per_tok: int,
    layers: Sequence[int] | None,
    weighting: str,
) -> dict[int, LayerSize]:
    """Checks what is asked for; gives the sizes of the layers concerned, with experts of unchanged width."""
    check_plain_weights(model)
    for name, value, smallest, largest in (
        ("num_experts", num_experts, 2, MAX_EXPERTS),
        ("num_experts_per_tok", num_experts_per_tok, 1, num_experts),
    ):
        if not isinstance(value, int) or not smallest <= value <= largest:
            raise ValueError(f"{name}={value!r} must be a whole number from {smallest} to {largest}.")
    full = model.config.layer_sizes()
    if model.config.expert_weighting != weighting and any(size.num_experts > 1 for size in full):
        raise ValueError(
            f"The model has experts with expert_weighting={model.config.expert_weighting!r}: others in the same model "
            f"would need {weighting!r}."
        )
    chosen = SubnetConfig(layers=layers).select(full)
    for size in chosen:
        if size.num_experts > 1:
            raise ValueError(f"Layer {size.layer} has {size.num_experts} experts already: leave it out of layers.")
    left_out = sorted({size.layer for size in full} - {size.layer for size in chosen})
    sharing = [layer for layer in left_out if full[layer].weights in {size.weights for size in chosen}]
    if sharing:
        raise ValueError(f"layers={layers!r}: layers {sharing} share the weights of some of them, add them.")
    experts = {"num_experts": num_experts, "num_experts_per_tok": num_experts_per_tok}
    return {size.layer: size._replace(**experts) for size in chosen}


def _config_with_experts(model: ElasticPreTrainedModel, sizes: dict[int, LayerSize], weighting: str) -> ElasticConfig:
    """Gives the configuration of a model in which layers have other sizes."""
    config = member_config(model.config, tuple(sizes.get(size.layer, size) for size in model.config.layer_sizes()))
    config.expert_weighting = weighting
    config._attn_implementation = model.config._attn_implementation
    return config


def _with_networks(
    model: ElasticPreTrainedModel, config: ElasticConfig, networks: dict[int, dict[str, torch.Tensor]]
) -> ElasticPreTrainedModel:
    """Makes a model of copies of the weights, in which layer modules have other feed-forward weights."""
    weights = {}
    for name, weight in model.state_dict().items():
        layer, rest = layer_and_name(name)
        if layer not in networks or not rest.startswith("mlp."):
            weights[name] = weight
    prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
    for layer, network in networks.items():
        weights |= {f"{prefix}layers.{layer}.mlp.{name}": weight for name, weight in network.items()}
    with_experts = type(model)(config).train(model.training)
    load_copies(with_experts, weights)
    return with_experts


@torch.no_grad()
def _expert_weights(mlp: ElasticMLP, neurons: torch.Tensor, router: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gives the weights of a module whose experts have the neurons of each row of `neurons`."""
    weights = {}
    for kind in ("weight", "bias"):
        if getattr(mlp.up_proj, kind) is None:
            continue
        name, rows = "up_proj", getattr(mlp.up_proj, kind)[neurons]
        if mlp.gate_proj is not None:
            gates = getattr(mlp.gate_proj, kind)[neurons]
            name, rows = "gate_up_proj", torch.stack((gates, rows), dim=2).flatten(1, 2)
        weights[f"experts.{name}" if kind == "weight" else f"experts.{name}_bias"] = rows
    weights["experts.down_proj"] = mlp.down_proj.weight[:, neurons].transpose(0, 1).contiguous()
    weights["router.weight"] = router.to(mlp.up_proj.weight.dtype)
    if mlp.down_proj.bias is not None:
        weights["bias"] = mlp.down_proj.bias
    return weights


def _activations(mlp: ElasticMLP, inputs: torch.Tensor) -> torch.Tensor:
    if mlp.gate_proj is None:
        return mlp.activation(mlp.up_proj(inputs))
    return mlp.activation(mlp.gate_proj(inputs)) * mlp.up_proj(inputs)


def _split(mlp: ElasticMLP, num_experts: int, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gives the weights of a module of the parts of a network, found with inputs of shape (tokens, hidden)."""
    with torch.no_grad():
        activations = _activations(mlp, inputs).float()
        # Of length one, because it matters how alike two neurons' patterns of activity are, and not how large. A part
        # of the tokens shows them as well as all, in a fraction of the time.
        features = nn.functional.normalize(activations[::4].abs().T.contiguous(), dim=1)
        clusters = balanced_clusters(features, num_experts)
        down = mlp.down_proj.weight.float()
        energy = torch.stack([(activations[:, c] @ down[:, c].T).square().sum(dim=1) for c in clusters], dim=1)
        parts = energy / energy.sum(dim=1, keepdim=True).clamp(min=torch.finfo(energy.dtype).tiny)
        order = parts.mean(dim=0).argsort(descending=True)
    return _expert_weights(mlp, clusters[order], _fit_router(inputs.float(), parts[:, order]))


def _fit_router(inputs: torch.Tensor, parts: torch.Tensor, decay: float = 1e-4) -> torch.Tensor:
    """Fits a softmax regression of parts, of shape (tokens, experts), on inputs; gives (experts, hidden) weights."""
    scale = inputs.std(dim=0, correction=0)  # some hidden units are a hundred times as large as others
    scale = scale.where(scale > 1e-6, 1.0)  # and what never changes tells nothing
    scaled = inputs / scale
    weight = torch.zeros(parts.shape[1], inputs.shape[1], device=inputs.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=30, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(scaled @ weight.T, parts) + decay * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    return weight.detach() / scale


def _draw_inputs(layer: ElasticLayer, model: ElasticPreTrainedModel) -> torch.Tensor:
    norm = layer.mlp_norm if layer.norm_first else layer.attention_norm
    drawn = torch.randn(MAX_TOKENS, model.config.hidden_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return norm(drawn.to(model.device, layer.mlp.up_proj.weight.dtype))


def _collect_inputs(
    model: ElasticPreTrainedModel, modules: dict[int, ElasticLayer], batches: Iterable[Mapping[str, torch.Tensor]]
) -> dict[int, torch.Tensor]:
    """Gives what goes into the feed-forward networks, of shape (tokens, hidden) each, padding left out."""
    collected: dict[int, list[torch.Tensor]] = {number: [] for number in modules}
    is_token: torch.Tensor | None = None

    def collect(number: int):
        def hook(_, inputs: tuple[torch.Tensor, ...]) -> None:
            tokens = inputs[0].flatten(0, -2)
            collected[number].append(tokens if is_token is None else tokens[is_token])

        return hook

    handles = [layer.mlp.register_forward_pre_hook(collect(number)) for number, layer in modules.items()]
    was_training = model.training
    model.eval()
    num_tokens = 0
    try:
        with model.use_subnet(None), torch.no_grad():
            for batch in batches:
                batch = model_inputs(batch, model.device)
                mask = batch.get("attention_mask")
                is_token = None if mask is None else mask.flatten().bool()
                model(**batch, unpad_inputs=False)
                num_tokens += len(collected[next(iter(modules))][-1])
                if num_tokens >= MAX_TOKENS:
                    break
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    if num_tokens == 0:
        raise ValueError("The dataloader gives no batch: give one with inputs, or None to do without.")
    return {number: torch.cat(tokens)[:MAX_TOKENS] for number, tokens in collected.items()}
