"""Parameter groups for the optimizer: learning rates by depth, and no weight decay for biases and norms."""

import re
from typing import Any

import torch
from torch import nn
from transformers.trainer_utils import unwrap_peft_model
from transformers.training_args import OptimizerNames

from ..modeling.modeling_elastic import ElasticModel
from .optimization_arguments import OptimizationArguments

_LAYER = re.compile(r"(?:^|\.)layers?\.(\d+)\.")
_HEAD = -1
# What an optimizer of transformers that makes groups of its own gives them as.
_OWN_GROUPS = ("params", "model", "optimizer_dict")


def parameter_groups(
    model: nn.Module, args: OptimizationArguments, learning_rate: float | None = None
) -> list[dict[str, Any]]:
    """Splits the trainable parameters by the learning rate and weight decay that they get.

    Layer k of n learns at `layer_lr_decay ** (n - k)` of the learning rate, the embeddings at `layer_lr_decay ** n`,
    what follows the last layer (final norm, pooler) at the full one, and the head at `head_lr_multiplier` times it.
    Layers that share their weights count as the topmost of them; a decoder whose weight is the embeddings' counts as
    embeddings. Schedulers of transformers multiply the learning rate of each group.

    Biases and vectors, norms among them, do not decay.

    Args:
        model (`nn.Module`):
            A supernet or another encoder of transformers, with any head, adapted with PEFT or not.
        args ([`OptimizationArguments`]):
            The multipliers; [`~transformers.TrainingArguments`] too, for `learning_rate` and `weight_decay`.
        learning_rate (`float`, *optional*):
            In place of `args.learning_rate`.

    Returns:
        `list[dict[str, Any]]`: Groups for an optimizer, each with a `name` such as `"layer_3_no_decay"`. They begin at
        the top of the encoder, and the head is the last: the learning rate that a training logs is the first one's.

    Raises:
        ValueError: If layers are to be told apart, and the names of the parameters do not tell.

    References:
        Howard and Ruder 2018, Universal Language Model Fine-tuning for Text Classification,
        https://arxiv.org/abs/1801.06146
        Clark et al. 2020, ELECTRA, https://arxiv.org/abs/2003.10555

    Example:
        >>> torch.optim.AdamW(parameter_groups(model, ElasticTrainingArguments("out", layer_lr_decay=0.9)))
    """
    learning_rate = args.learning_rate if learning_rate is None else learning_rate
    depths, num_layers = _parameter_depths(model)
    if args.layer_lr_decay != 1 and num_layers == 0:
        raise ValueError(
            f"layer_lr_decay={args.layer_lr_decay} needs layers, but no parameter of the encoder of "
            f"{type(model).__name__} is named like 'layers.0.*' or 'layer.0.*'. Give 1."
        )
    groups: dict[tuple, dict[str, Any]] = {}
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    for name, parameter in sorted(trained, key=lambda item: -depths[item[0]]):
        part, multiplier = _part(depths[name], num_layers, args)
        decays = _decays(name, parameter)
        group = {
            "params": [],
            "name": part if decays else f"{part}_no_decay",
            "lr": learning_rate * multiplier,
            "weight_decay": args.weight_decay if decays else 0.0,
        }
        # Fused kernels do not span the device meshes of tensor parallelism.
        key = (part, decays, getattr(parameter, "device_mesh", None))
        groups.setdefault(key, group)["params"].append(parameter)
    return list(groups.values())


def with_parameter_groups(
    optimizer_cls: Any,
    optimizer_kwargs: dict[str, Any],
    model: nn.Module,
    args: OptimizationArguments,
    batch_size: int,
) -> dict[str, Any]:
    """Adds the groups, and the learning rate for a batch size, to the arguments that an optimizer is made with.

    Args:
        optimizer_cls (`Any`), optimizer_kwargs (`dict[str, Any]`):
            What [`~transformers.Trainer.get_optimizer_cls_and_kwargs`] returns.
        model (`nn.Module`), args ([`OptimizationArguments`]):
            As [`parameter_groups`] takes them.
        batch_size (`int`):
            Examples of a step, accumulated and over all processes.

    Returns:
        `dict[str, Any]`: The arguments, with the groups as `params`.

    Raises:
        ValueError: If the optimizer makes groups of its own, and layers or the head are to learn at other rates.
    """
    learning_rate = optimizer_kwargs.get("lr", args.learning_rate) * args.batch_lr_multiplier(batch_size)
    optimizer_kwargs = {**optimizer_kwargs, "lr": learning_rate}
    is_optimizer = isinstance(optimizer_cls, type) and issubclass(optimizer_cls, torch.optim.Optimizer)
    if is_optimizer and not optimizer_kwargs.keys() & set(_OWN_GROUPS):
        return {**optimizer_kwargs, "params": parameter_groups(model, args, learning_rate)}
    optim = OptimizerNames(args.optim).value
    for name in ("layer_lr_decay", "head_lr_multiplier"):
        if getattr(args, name) != 1:
            raise ValueError(
                f"{name}={getattr(args, name)} has no effect on optim={optim!r}, which groups the parameters itself. "
                "Give 1, or another optimizer."
            )
    return optimizer_kwargs


def find_encoder(model: nn.Module) -> nn.Module:
    """The model below its head and adapters; a model without a head itself.

    Args:
        model (`nn.Module`):
            A model of transformers, adapted with PEFT or not.
    """
    model = unwrap_peft_model(model)
    return getattr(model, "base_model", model)


def _parameter_depths(model: nn.Module) -> tuple[dict[str, int], int]:
    """How many layers each parameter has below it and with it, by name, and the number of layers."""
    encoder = find_encoder(model)
    of_encoder = {id(parameter): name for name, parameter in encoder.named_parameters()}
    of_head = {id(parameter) for parameter in unwrap_peft_model(model).parameters()} - of_encoder.keys()
    if isinstance(encoder, ElasticModel):
        layers = {size.weights: size.layer + 1 for size in encoder.layer_sizes}
    else:
        found = filter(None, map(_LAYER.search, of_encoder.values()))
        layers = {int(match[1]): int(match[1]) + 1 for match in found}
    num_layers = max(layers.values(), default=0)
    depths = {}
    for name, parameter in model.named_parameters():
        own_name = of_encoder.get(id(parameter))
        if id(parameter) in of_head:
            depths[name] = _HEAD
        elif own_name is None:  # soft prompts, which adapters put before the input
            depths[name] = 0
        elif match := _LAYER.search(own_name):
            depths[name] = layers[int(match[1])]
        else:
            depths[name] = 0 if "embedding" in own_name else num_layers + 1
    return depths, num_layers


def _part(depth: int, num_layers: int, args: OptimizationArguments) -> tuple[str, float]:
    """The name of a depth, and what its learning rate is multiplied by."""
    if depth == _HEAD:
        return "head", args.head_lr_multiplier
    if args.layer_lr_decay == 1:
        return "encoder", 1.0
    if depth > num_layers:
        return "top", 1.0
    return f"layer_{depth - 1}" if depth else "embeddings", args.layer_lr_decay ** (num_layers - depth)


def _decays(name: str, parameter: nn.Parameter) -> bool:
    # The rule of Trainer.get_decay_parameter_names, extended to all vectors. DeepSpeed flattens what it shards.
    return len(getattr(parameter, "ds_shape", parameter.shape)) > 1 and "bias" not in name
