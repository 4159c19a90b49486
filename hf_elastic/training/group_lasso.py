"""Group lasso on attention heads and feed-forward neurons: unimportant ones become exactly zero.

What is distinctive: the penalty is not part of the loss, but a step of its own after the optimizer's (proximal
gradient descent), as weight decay is in AdamW. A penalty in the loss would only bring weights near to zero, and Adam
would scale its gradients like those of the loss.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import unwrap_peft_model

from ..compression.units import layer_and_name, units_of

# Units that are penalized, and what a unit of each has along a dimension of a weight.
UNITS = ("head_dims", "neurons")


class GroupLasso(TrainerCallback):
    """Shrinks the weights of each head and each neuron of an encoder after every optimizer step.

    A head's group are its rows of the projections of queries, keys and values and its columns of the output
    projection; a neuron's are its rows and columns of the feed-forward network. With the learning rate `lr` of its
    layer, a group of `n` weights with the norm `w` is multiplied by `max(0, 1 - lr * strength * sqrt(n) / w)`. So a
    group whose weights are smaller on average than `lr * strength` vanishes, unless the loss holds against it.
    [`rank`] puts such units last, and [`extract`] leaves them out. Experts are not penalized.

    Args:
        strength (`float`):
            How much the root mean square of a group's weights shrinks in a step, per unit of the learning rate.

    Raises:
        ValueError: When a training begins whose optimizer does not tell the learning rates of the weights.

    References:
        Yuan and Lin 2006, Model Selection and Estimation in Regression with Grouped Variables
        Wen et al. 2016, Learning Structured Sparsity in Deep Neural Networks, https://arxiv.org/abs/1608.03665
        Parikh and Boyd 2014, Proximal Algorithms
    """

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        **kwargs: Any,
    ) -> None:
        rates = _learning_rates(optimizer)
        if any(weights[0][0] not in rates for _, weights in unit_weights(unwrap_peft_model(model))):
            raise ValueError(
                f"group_penalty={self.strength} follows the learning rates of the weights, which the optimizer does "
                f"not tell (optim={str(args.optim)!r}). Give an optimizer that trains all layers in one step, such as "
                "'adamw_torch', or group_penalty=0."
            )

    @torch.no_grad()
    def on_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        rates = _learning_rates(optimizer)
        elastic = unwrap_peft_model(model)
        for units, weights in unit_weights(elastic):
            first, _ = weights[0]  # which all weights of a layer learn as
            if first.grad is None:  # in a step that is left out
                continue
            shrinkage = self.strength * rates[first]
            number = elastic.config.head_dim if units == "head_dims" else 1
            rows = [weight.movedim(dim, 0).unflatten(0, (-1, number)) for weight, dim in weights]
            norms = torch.stack([row.flatten(1).float().square().sum(dim=1) for row in rows]).sum(dim=0).sqrt()
            size = sum(row[0].numel() for row in rows)
            factors = (1 - shrinkage * size**0.5 / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(min=0)
            for row in rows:  # views, hence in place
                row.mul_(factors.to(row.dtype).view(-1, *[1] * (row.dim() - 1)))


def unit_weights(model: nn.Module) -> Iterator[tuple[str, list[tuple[Tensor, int]]]]:
    """Gives the trainable weights of each layer that heads or neurons index, with the dimension that they do it along.

    Args:
        model: An elastic model.

    Yields:
        `"head_dims"` or `"neurons"`, and the weights with their dimensions.
    """
    found: dict[tuple[int, str], list[tuple[Tensor, int]]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        layer, weight_name = layer_and_name(name)
        if layer is None or weight_name.startswith("mlp.experts") or not parameter.requires_grad:
            continue
        for dim, units in enumerate(units_of(name)):
            if units in UNITS:
                found[layer, units].append((parameter, dim))
    for (_, units), weights in found.items():
        yield units, weights


def _learning_rates(optimizer: torch.optim.Optimizer) -> dict[Tensor, float]:
    return {parameter: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
