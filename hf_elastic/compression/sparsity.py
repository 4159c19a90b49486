"""What the heads of block-sparse layers have learned to leave out."""

from ..modeling.attention_elastic import block_pattern
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import SubnetConfig
from .checks import check_elastic


def head_sparsities(
    model: ElasticPreTrainedModel, subnet: str | SubnetConfig | None = None
) -> dict[int, tuple[float, ...]]:
    """Gives the learned sparsity of every head: the part of an input's blocks that it leaves out.

    Args:
        model (`ElasticPreTrainedModel`):
            The supernet or a member.
        subnet (`str`, `SubnetConfig` or `None`):
            A name in `model.config.subnets`, or a size; `None` is the full model.

    Returns:
        `dict[int, tuple[float, ...]]`: For the index of each block-sparse layer, a number in [0, 1) per head, in the
        order of the heads.

    Raises:
        TypeError: If the model is not elastic.
        ValueError: If the name is unknown or the size does not fit.
    """
    check_elastic(model)
    layers, types = model.base_model.layers, model.config.layer_types
    return {
        size.layer: tuple(layers[size.weights].attention.sparsity(size.num_attention_heads).tolist())
        for size in model.resolve_subnet(subnet).layer_sizes(model.config)
        if types[size.layer] == "block_sparse_attention"
    }


def head_budgets(
    model: ElasticPreTrainedModel, sequence_length: int, subnet: str | SubnetConfig | None = None
) -> dict[int, tuple[int, ...]]:
    """Gives how many blocks of a text every head sees with a block of queries in its middle.

    What a head always sees (its own positions and global tokens) is not left out, however high its sparsity is; and of
    a text that is so short that dense attention is as fast, nothing is, see [`ElasticConfig`].

    Args:
        model (`ElasticPreTrainedModel`):
            The supernet or a member.
        sequence_length (`int`):
            Tokens of the text.
        subnet (`str`, `SubnetConfig` or `None`):
            A name in `model.config.subnets`, or a size; `None` is the full model.

    Returns:
        `dict[int, tuple[int, ...]]`: For the index of each block-sparse layer, a number of blocks per head.

    Raises:
        TypeError: If the model is not elastic.
        ValueError: If the name is unknown, the size does not fit, or the length is not positive.
    """
    if sequence_length < 1:
        raise ValueError(f"sequence_length={sequence_length} must be at least 1.")
    sparsities = head_sparsities(model, subnet)
    pattern = block_pattern(model.config)
    blocks = -(-sequence_length // pattern.block_size)
    always = blocks if sequence_length < pattern.dense_below else pattern.span + pattern.num_global_blocks
    return {
        layer: tuple(max(min(always, blocks), int((1 - sparsity) * blocks + 0.5)) for sparsity in of_layer)
        for layer, of_layer in sparsities.items()
    }
