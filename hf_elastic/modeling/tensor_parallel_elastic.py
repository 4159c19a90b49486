"""What a model can run whose layers are split between processes, each with a part of the heads and the neurons."""

from collections.abc import Sequence

from .configuration_elastic import BLOCK_SPARSE, ElasticConfig
from .subnet_elastic import LayerSize


def check_tensor_parallel(config: ElasticConfig, sizes: Sequence[LayerSize], full: Sequence[LayerSize]) -> None:
    """Checks that a size can run under tensor parallelism; without it, any can.

    A process has a contiguous part of a layer's heads and neurons. The leading ones that a smaller size runs all lie
    in the first processes, and the others would silently add theirs.

    Args:
        config ([`ElasticConfig`]):
            Configuration of the model; `from_pretrained` writes there how the model is split.
        sizes (`Sequence[LayerSize]`):
            The layers that run.
        full (`Sequence[LayerSize]`):
            All layers of the full model.

    Raises:
        ValueError: If a layer runs in part, has a number of heads that the processes cannot share evenly, or has
            learnable sparsities, which belong to heads and are not split.
    """
    processes = getattr(getattr(config, "distributed_config", None), "tp_size", 1)
    if processes == 1:
        return
    for size in sizes:
        whole = full[size.layer]
        if size != whole:
            axis = next(axis for axis in size._fields if getattr(size, axis) != getattr(whole, axis))
            raise ValueError(
                f"A subnet has {axis}={getattr(size, axis)} of {getattr(whole, axis)} in layer {size.layer}; layers "
                f"only run whole under tensor parallelism (tp_size={processes}). Run sizes of fewer layers, extract "
                "the size (hf_elastic.extract), or split the model with fsdp_size instead."
            )
        if size.num_attention_heads % processes:
            raise ValueError(
                f"tp_size={processes} does not divide num_attention_heads={size.num_attention_heads} of layer "
                f"{size.layer}. Give a divisor, or split the model with fsdp_size instead."
            )
        if config.layer_types[size.layer] == BLOCK_SPARSE:
            raise ValueError(
                f"Layer {size.layer} is of type {BLOCK_SPARSE!r}, which tensor parallelism (tp_size={processes}) does "
                "not split. Split the model with fsdp_size instead."
            )


__all__ = ["check_tensor_parallel"]
