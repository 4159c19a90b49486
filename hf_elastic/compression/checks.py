"""What has to hold of a model before it is ranked, cut or counted, said before any work."""

from collections.abc import Mapping

import torch

from ..modeling.modeling_elastic import ElasticPreTrainedModel
from .units import replaced_modules


def check_elastic(model: object) -> None:
    """Checks that a model is elastic.

    Raises:
        TypeError: If it is of another kind; says how to get there.
    """
    if isinstance(model, ElasticPreTrainedModel):
        return
    remedy = "convert it first: hf_elastic.convert(model)"
    if hasattr(model, "merge_and_unload"):
        remedy = "merge its adapters first: model = model.merge_and_unload()"
    raise TypeError(f"model is a {type(model).__name__}, not an elastic model: {remedy}.")


def check_plain_weights(model: ElasticPreTrainedModel) -> None:
    """Checks that a model is elastic and that nothing was added to, or done to, the weights that sizes cut.

    Raises:
        TypeError: If the model is not elastic, or a projection was replaced by another kind of layer (an adapter, a
            quantized one); names it.
    """
    check_elastic(model)
    for path, module in replaced_modules(model):
        kind = f"{type(module).__module__}.{type(module).__name__}"
        raise TypeError(
            f"{path} is a {kind}: its weights cannot be cut or reordered alone. Merge adapters first "
            "(model.merge_and_unload()), and quantize last."
        )


def check_max_batches(max_batches: int | None) -> None:
    """Checks the number of batches that are used at most.

    Raises:
        ValueError: If it is not a positive whole number or None.
    """
    if max_batches is not None and (not isinstance(max_batches, int) or max_batches < 1):
        raise ValueError(f"max_batches={max_batches!r} must be a whole number of at least 1, or None.")


def model_inputs(batch: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """Gives a batch on a device, to be computed with its padding: without, the positions of an example get lost.

    Raises:
        TypeError: If it is no batch.
        ValueError: If a value is no tensor with one row per example.
    """
    if not isinstance(batch, Mapping):
        raise TypeError(f"The dataloader gives a {type(batch).__name__}: give a list of batches, or what yields them.")
    inputs = {}
    for name, value in batch.items():
        if name == "unpad_inputs":
            continue
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            raise ValueError(f"A batch has {name}={value!r}: each value must be a tensor with one row per example.")
        inputs[name] = value.to(device)
    return inputs
