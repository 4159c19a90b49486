"""The units that sizes keep a prefix of, and the weights that they index: in one table for all that cut or reorder."""

import re
from collections.abc import Iterator

import torch
from torch import nn

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.experts_elastic import ElasticRouter
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.slicing_elastic import ElasticLayerNorm, ElasticLinear
from ..modeling.subnet_elastic import LayerSize

# Of each weight of a layer, the units along its dimensions. `head_dims` are the dimensions of all heads one after the
# other, `heads` has one entry per head; `gated_neurons` has two per neuron.
LAYER_UNITS: dict[str, tuple[str | None, ...]] = {
    "attention.q_proj.weight": ("head_dims", "hidden"),
    "attention.q_proj.bias": ("head_dims",),
    "attention.k_proj.weight": ("head_dims", "hidden"),
    "attention.k_proj.bias": ("head_dims",),
    "attention.v_proj.weight": ("head_dims", "hidden"),
    "attention.v_proj.bias": ("head_dims",),
    "attention.o_proj.weight": ("hidden", "head_dims"),
    "attention.o_proj.bias": ("hidden",),
    "attention.sparsity_logit": ("heads",),
    "attention_norm.weight": ("hidden",),
    "attention_norm.bias": ("hidden",),
    "mlp.gate_proj.weight": ("neurons", "hidden"),
    "mlp.gate_proj.bias": ("neurons",),
    "mlp.up_proj.weight": ("neurons", "hidden"),
    "mlp.up_proj.bias": ("neurons",),
    "mlp.down_proj.weight": ("hidden", "neurons"),
    "mlp.down_proj.bias": ("hidden",),
    "mlp.router.weight": ("experts", "hidden"),
    "mlp.experts.gate_up_proj": ("experts", "gated_neurons", "hidden"),
    "mlp.experts.gate_up_proj_bias": ("experts", "gated_neurons"),
    "mlp.experts.up_proj": ("experts", "neurons", "hidden"),
    "mlp.experts.up_proj_bias": ("experts", "neurons"),
    "mlp.experts.down_proj": ("experts", "hidden", "neurons"),
    "mlp.bias": ("hidden",),
    "mlp_norm.weight": ("hidden",),
    "mlp_norm.bias": ("hidden",),
}
# The same of all other weights. `embedding` are the features of the embeddings: the hidden units, unless a projection
# follows. `features` are what a classifier reads: outputs of the dense layer before it, or the hidden units.
MODEL_UNITS: dict[str, tuple[str | None, ...]] = {
    "embeddings.word_embeddings.weight": (None, "embedding"),
    "embeddings.position_embeddings.weight": (None, "embedding"),
    "embeddings.token_type_embeddings.weight": (None, "embedding"),
    "embeddings.norm.weight": ("embedding",),
    "embeddings.norm.bias": ("embedding",),
    "embeddings.projection.weight": ("hidden", None),
    "embeddings.projection.bias": ("hidden",),
    "final_norm.weight": ("hidden",),
    "final_norm.bias": ("hidden",),
    "pooler.dense.weight": ("features", "hidden"),
    "pooler.dense.bias": ("features",),
    "pooler.norm.weight": ("features",),
    "pooler.norm.bias": ("features",),
    "head.dense.weight": ("features", "hidden"),
    "head.dense.bias": ("features",),
    "head.norm.weight": ("features",),
    "head.norm.bias": ("features",),
    "classifier.weight": (None, "features"),
    "classifier.bias": (None,),
    "qa_outputs.weight": (None, "features"),
    "qa_outputs.bias": (None,),
    "lm_head.dense.weight": ("embedding", "hidden"),
    "lm_head.dense.bias": ("embedding",),
    "lm_head.norm.weight": ("embedding",),
    "lm_head.norm.bias": ("embedding",),
    "lm_head.decoder.weight": (None, "embedding"),
    "lm_head.decoder.bias": (None,),
}
# What the weights of experts are where one of them is left: those of a plain network, which has no router.
OF_ONE_EXPERT: dict[str, tuple[str, ...]] = {
    "mlp.router.weight": (),
    "mlp.experts.gate_up_proj": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "mlp.experts.gate_up_proj_bias": ("mlp.gate_proj.bias", "mlp.up_proj.bias"),
    "mlp.experts.up_proj": ("mlp.up_proj.weight",),
    "mlp.experts.up_proj_bias": ("mlp.up_proj.bias",),
    "mlp.experts.down_proj": ("mlp.down_proj.weight",),
    "mlp.bias": ("mlp.down_proj.bias",),
}
# Where the weights of an embedding table stay whole: its rows are looked up, and cut afterwards.
TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")
# What can run as a part of its weight, or has none.
CUTTABLE = (ElasticLinear, ElasticLayerNorm, ElasticRouter, nn.Embedding, nn.Identity)


def units_of(name: str) -> tuple[str | None, ...]:
    """Gives the units along the dimensions of a weight, by its name; nothing for what sizes keep as a whole."""
    layer, weight_name = layer_and_name(name)
    return (MODEL_UNITS if layer is None else LAYER_UNITS).get(weight_name, ())


def replaced_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Gives the modules at places where sizes run a part of a weight, but of a kind that only runs as a whole."""
    for path, module in model.named_modules():
        layer, name = layer_and_name(f"{path}.weight")
        if name in (MODEL_UNITS if layer is None else LAYER_UNITS) and not isinstance(module, CUTTABLE):
            yield path, module


def layer_and_name(name: str) -> tuple[int | None, str]:
    """Splits the name of a weight into the number of its layer module, if it is in one, and the rest."""
    name = name.removeprefix(f"{ElasticPreTrainedModel.base_model_prefix}.")
    in_layer = re.fullmatch(r"layers\.(\d+)\.(.+)", name)
    return (int(in_layer[1]), in_layer[2]) if in_layer else (None, name)


def has_classifier_features(model: ElasticPreTrainedModel) -> bool:
    """Whether a dense layer stands between the hidden units and the classifier."""
    return model.base_model.pooler is not None or model.config.token_transform


def kept_shape(name: str, shape: torch.Size, size: LayerSize, config: ElasticConfig) -> tuple[int, ...]:
    """Gives the shape that a weight has in a size.

    Args:
        name (`str`):
            Name of the weight.
        shape (`torch.Size`):
            Its shape in the supernet.
        size (`LayerSize`):
            Size of its layer; of weights outside of layers, of any layer.
        config ([`ElasticConfig`]):
            Configuration of the supernet.
    """
    widths = {
        "head_dims": size.num_attention_heads * config.head_dim,
        "heads": size.num_attention_heads,
        "neurons": size.intermediate_size,
        "gated_neurons": 2 * size.intermediate_size,
        "experts": size.num_experts,
        "hidden": size.hidden_size,
        "features": size.hidden_size,
        "embedding": config.embedding_size if config.embedding_projection else size.hidden_size,
    }
    units = units_of(name) or (None,) * len(shape)
    return tuple(widths.get(unit, length) for unit, length in zip(units, shape, strict=True))


def kept_weights(
    weights: dict[str, torch.Tensor], sizes: tuple[LayerSize, ...], config: ElasticConfig
) -> Iterator[tuple[str, torch.Tensor]]:
    """Cuts weights to a size, as views, under the names that they have in a model of this size alone.

    Args:
        weights (`dict[str, torch.Tensor]`):
            The supernet's weights by name.
        sizes (`tuple[LayerSize, ...]`):
            The layers that are kept.
        config ([`ElasticConfig`]):
            Configuration of the supernet.

    Yields:
        Name and weight; each once, however many layers share it.
    """
    # Layers that share weights agree on their size, so that any of them speaks for the module.
    modules = {size.weights: size for size in sizes}
    for name, weight in weights.items():
        layer, rest = layer_and_name(name)
        if layer is not None:
            if layer not in modules:
                continue
            name = f"{name.removesuffix(f'layers.{layer}.{rest}')}layers.{list(modules).index(layer)}.{rest}"
        size = sizes[0] if layer is None else modules[layer]
        for dimension, length in enumerate(kept_shape(name, weight.shape, size, config)):
            weight = weight.narrow(dimension, 0, length)
        if size.num_experts == 1 and rest in OF_ONE_EXPERT:
            yield from _of_one_expert(name.removesuffix(rest), rest, weight)
        else:
            yield name, weight


def _of_one_expert(prefix: str, rest: str, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Gives a weight of experts of which one is left as those of the plain network that it is."""
    parts = OF_ONE_EXPERT[rest]
    if rest != "mlp.bias":
        weight = weight[0]
    for number, part in enumerate(parts):
        yield f"{prefix}{part}", weight.unflatten(0, (-1, len(parts)))[:, number] if len(parts) > 1 else weight
