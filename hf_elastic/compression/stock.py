"""From a member back to the class of the checkpoint that it came from."""

from collections.abc import Iterator

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from ..modeling.attention_elastic import SPARSE_IMPLEMENTATION
from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.modeling_elastic import ElasticModel, ElasticPreTrainedModel
from ..modeling.pooling_elastic import ElasticPredictionHead
from ..modeling.subnet_elastic import LAYER_AXES
from .checks import check_plain_weights
from .copies import load_copies
from .sources import HEAD_FIELDS, Head, Source, find_source
from .units import layer_and_name

# Fields that change nothing about what a dense model computes in evaluation.
NOT_COMPUTED = (
    "initializer_range",
    "layer_groups",
    "unpad_inputs",
    "hidden_units_ranked",
    "attention_block_size",
    "attention_sparsity",
    "sparsity_penalty",
    "sparse_attention",
    "expert_weighting",
    "router_aux_loss_coef",
    "router_z_loss_coef",
    "source_model_type",
    "source_name_or_path",
    "subnets",
)
# Fields that only one part of a model reads.
CLASSIFIER_FIELDS = (
    "classifier_pooling",
    "pooling_skips_padding",
    "classifier_activation",
    "classifier_norm",
    "classifier_bias",
)
LM_HEAD_FIELDS = ("lm_head_activation", "lm_head_bias", "decoder_bias")
WINDOW_FIELDS = ("sliding_window", "num_global_tokens", "num_random_blocks", "random_block_seeds")


def to_stock(member: ElasticPreTrainedModel) -> PreTrainedModel:
    """Gives a member as a model of the source's own class, for servers that know only that, e.g. `BertModel`.

    Args:
        member (`ElasticPreTrainedModel`):
            An extracted member, or a supernet, of which the full model is taken. It is left as it is.

    Returns:
        `PreTrainedModel`: For instance a `BertForSequenceClassification` with the same outputs. Layers that share
        their weights get copies of their own.

    Raises:
        TypeError: If the model is not elastic, or its weights are adapted or quantized.
        ValueError: If the source's class cannot express the member. Names the setting that stands in the way.

    Example:
        >>> member = extract(model, SubnetConfig.scaled(model.config, depth=0.5, ffn=0.5))
        >>> to_stock(member).save_pretrained("bert-small")
    """
    check_plain_weights(member)
    config = member.config
    if config.source_model_type is None:
        raise ValueError(
            "source_model_type=None: the model was not converted from a checkpoint. Set it, e.g. to 'bert'."
        )
    source = find_source(config.source_model_type)
    _check_layers(config, source)
    head, stock_class, stock_config = _choose_class(member, source)
    arguments = {"add_pooling_layer": member.pooler is not None} if head.optional_pooler else {}
    stock_model = stock_class(stock_config, **arguments).to(member.device).train(member.training)
    load_copies(stock_model, source.source_weights(dict(_weights_by_layer(member)), head))
    return stock_model


def _check_layers(config: ElasticConfig, source: Source) -> None:
    """Checks that the source's class can have layers of these sizes and types."""
    for layer, layer_type in enumerate(config.layer_types):  # what no choice of a size changes comes first
        if layer_type not in source.layer_types:
            raise ValueError(
                f"layer_types has {layer_type!r} for layer {layer}: {source.model_type} has only "
                f"{', '.join(source.layer_types)}."
            )
    sizes = config.layer_sizes()
    for axis in LAYER_AXES:
        values = sorted({getattr(size, axis) for size in sizes})
        if len(values) > 1:
            raise ValueError(
                f"{axis} differs between layers ({values}), and {source.model_type} has one for all: choose a subnet "
                "with one number."
            )
    heads = sizes[0].num_attention_heads
    if heads * config.head_dim != config.hidden_size:
        raise ValueError(
            f"num_attention_heads={heads} of head_dim={config.head_dim} do not make up hidden_size="
            f"{config.hidden_size}, as {source.model_type} needs: choose a subnet with hidden_size="
            f"{heads * config.head_dim}, or one that keeps {config.hidden_size // config.head_dim} heads."
        )


def _choose_class(
    member: ElasticPreTrainedModel, source: Source
) -> tuple[Head, type[PreTrainedModel], PreTrainedConfig]:
    """Gives the first of the source's classes that computes the same, with its configuration."""
    config = member.config
    attention = config._attn_implementation
    elastic_classes = {cls.__name__ for cls in type(member).__mro__}
    obstacles = []
    for class_name, head in source.heads.items():
        if head.elastic_class not in elastic_classes or not head.invertible:
            continue
        stock_class = getattr(transformers, class_name)
        stock_config = stock_class.config_class(
            **source.source_fields(config, head),
            **{name: getattr(config, name) for name in HEAD_FIELDS if getattr(config, name) is not None},
            name_or_path=config.name_or_path,
            attn_implementation=None if attention == SPARSE_IMPLEMENTATION else attention,
        )
        # What the class makes of its configuration has to be what the member is.
        same = source.elastic_config(stock_config, head, add_pooling_layer=config.add_pooling_layer)
        different = next((name for name in _computed(member) if getattr(config, name) != getattr(same, name)), None)
        if different is None:
            return head, stock_class, stock_config
        remedy = ""
        if different == "embedding_projection":
            remedy = f": choose a subnet with another hidden_size than {config.embedding_size}"
        elif different == "first_attention_norm":
            remedy = ": choose a subnet that keeps layer 0"
        elif different in (*CLASSIFIER_FIELDS, *LM_HEAD_FIELDS, "token_transform"):
            remedy = ": convert the source with `task`, which gives the head that its class has"
        obstacles.append(
            f"{different}={getattr(config, different)!r} cannot be expressed by {class_name}, which has "
            f"{different}={getattr(same, different)!r}{remedy}."
        )
    raise ValueError(obstacles[0])


def _computed(member: ElasticPreTrainedModel) -> list[str]:
    """Gives the fields of the configuration that the outputs of a dense model depend on in evaluation."""
    ignored = set(NOT_COMPUTED)
    if not isinstance(member, ElasticModel):
        ignored.add("add_pooling_layer")
    if not hasattr(member, "lm_head"):
        ignored.update(LM_HEAD_FIELDS)
    if not hasattr(member, "head"):
        ignored.add("token_transform")
    if not any(isinstance(module, ElasticPredictionHead) for module in member.modules()):
        ignored.update(CLASSIFIER_FIELDS)
    if "sliding_attention" not in member.config.layer_types:
        ignored.update(WINDOW_FIELDS)
    fields = (*ElasticConfig.__annotations__, "num_labels")
    return [name for name in fields if name not in ignored and "dropout" not in name]


def _weights_by_layer(member: ElasticPreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Gives the weights by name, those that layers share once for each layer."""
    sizes = member.config.layer_sizes()
    for name, weight in member.state_dict().items():
        module, rest = layer_and_name(name)
        if module is None:
            yield name, weight
            continue
        for layer, size in enumerate(sizes):
            if size.weights == module:
                yield name.replace(f"layers.{module}.", f"layers.{layer}."), weight
