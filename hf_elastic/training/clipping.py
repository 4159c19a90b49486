"""Limits of gradients that follow the weights or the training, instead of one fixed number."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.trainer_utils import unwrap_peft_model

from .parameter_groups import find_encoder
from .step_statistics import StepStatistics


@torch.no_grad()
def clip_adaptively(parameters: Iterable[nn.Parameter], ratio: float, eps: float = 1e-3) -> Tensor:
    """Scales down, in place, the gradient of each unit that is too large for the unit's weights.

    A unit is one output of a linear layer or of an expert, one row of an embedding, or a whole vector. Its gradient's
    norm is at most `ratio` times its weights' norm afterwards. Norms are computed in float32.

    To be called once per optimizer step: after all accumulation, after processes have averaged their gradients, and
    after gradients of float16 have been unscaled.

    Args:
        parameters (`Iterable[nn.Parameter]`):
            What to clip, see [`clippable_parameters`]; those without a gradient are skipped.
        ratio (`float`):
            Largest ratio of norms, e.g. 0.01.
        eps (`float`, defaults to 1e-3):
            Smallest norm that weights count with, so that units which are zero can leave it.

    Returns:
        `Tensor`: The share of units that were clipped, a scalar in [0, 1].

    References:
        Brock et al. 2021, High-Performance Large-Scale Image Recognition Without Normalization,
        https://arxiv.org/abs/2102.06171
    """
    num_clipped, num_units = torch.zeros(()), 0
    for parameter in parameters:
        if parameter.grad is None:
            continue
        limits = ratio * _unit_norms(parameter).clamp(min=eps)
        scales = (limits / _unit_norms(parameter.grad)).clamp(max=1.0)  # a zero gradient gives infinity first
        parameter.grad.mul_(scales)
        clipped = (scales < 1).sum()
        clipped = clipped.full_tensor() if hasattr(clipped, "full_tensor") else clipped
        num_clipped = num_clipped.to(clipped.device) + clipped
        num_units += scales.numel()
    return num_clipped / max(num_units, 1)


def clippable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters except those of the head's last linear layer, as Brock et al. 2021 clip them.

    A last layer whose weight is the embeddings' keeps that weight clipped.

    Args:
        model (`nn.Module`):
            A model of transformers, adapted with PEFT or not.
    """
    of_encoder = set(find_encoder(model).modules())
    of_head = [module for module in unwrap_peft_model(model).modules() if module not in of_encoder]
    linear = [module for module in of_head if isinstance(module, nn.Linear)]
    last = set(linear[-1].parameters()) - set(find_encoder(model).parameters()) if linear else set()
    return [parameter for parameter in model.parameters() if parameter.requires_grad and parameter not in last]


class PercentileClipping(StepStatistics):
    """Limits the norm of the whole gradient to a percentile of the latest norms.

    A callback only so that checkpoints hold the norms, and a training begins without them: the trainer asks for the
    limit, once per optimizer step, with the norm of the gradients that all processes have averaged. The settings are
    no part of the state, so that a resumed training may go on with others.

    Attributes:
        norms (`list[float]`): The latest norms.

    References:
        Seetharaman et al. 2020, AutoClip: Adaptive Gradient Clipping for Source Separation Networks,
        https://arxiv.org/abs/2007.14469
    """

    def __init__(self) -> None:
        self.norms: list[float] = []
        self._norms_before: list[float] = []

    def limit(self, norm: Tensor | float, percentile: float, window: int = 100) -> float:
        """Takes down the norm of a step's gradient.

        Args:
            norm (`Tensor` or `float`):
                The norm before clipping. One that is not finite does not count.
            percentile (`float`):
                Percentile of the norms, in (0, 100]; 10 in the paper.
            window (`int`, defaults to 100):
                How many of the latest norms count, the present one among them. The paper takes all.

        Returns:
            `float`: What the norm is to be clipped to; infinity before the first finite one.
        """
        norm, self._norms_before = float(norm), self.norms
        known = [norm] if math.isfinite(norm) else []
        self.norms = [*self.norms, *known][-window:]
        return float(np.percentile(self.norms, percentile)) if self.norms else math.inf

    def forget_step(self) -> None:
        self.norms = self._norms_before

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"norms": self.norms}}


def _unit_norms(tensor: Tensor) -> Tensor:
    """One norm per row of a weight, in a shape that multiplies it; one for a vector."""
    dim = -1 if tensor.ndim > 1 else None
    return torch.linalg.vector_norm(tensor, dim=dim, keepdim=tensor.ndim > 1, dtype=torch.float32)
