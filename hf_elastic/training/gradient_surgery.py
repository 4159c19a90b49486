"""Gradients of the subnets of a step, brought together so that they conflict less than their sum does.

What is distinctive: the methods of `torchjd` need of all gradients only their products with one another. These are
added up weight by weight, so that no matrix of all gradients is ever made.
"""

import zlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

INSTALL = 'pip install "hf_elastic[surgery]"'
# By name: the class of `torchjd.aggregation` whose weights are used, none for the plain sum.
CONFLICT_HANDLING: dict[str, str | None] = {"add": None, "pcgrad": "PCGradWeighting", "upgrad": "UPGradWeighting"}


def make_weighting(method: str) -> Callable[[Tensor], Tensor]:
    """Makes what weighs the gradients by their products.

    Args:
        method: `"pcgrad"` or `"upgrad"`.

    Raises:
        ImportError: If `torchjd` is not installed.
    """
    try:
        from torchjd import aggregation
    except ImportError as error:
        raise ImportError(f"gradient_conflicts={method!r} needs `torchjd`: {INSTALL}") from error
    return getattr(aggregation, CONFLICT_HANDLING[method])()


class GradientSurgery:
    """Keeps the gradient of each subnet by itself during a step, and makes one of them at its end.

    Args:
        method (`str`):
            `"pcgrad"` projects each gradient onto the plane of every other one that it conflicts with (Yu et al.
            2020, https://arxiv.org/abs/2001.06782), in random order; `"upgrad"` projects each onto the directions
            that conflict with none (Quinton and Rey 2024, https://arxiv.org/abs/2406.16232). Both give the sum where
            no two conflict.
        parameters (`Sequence[Tensor]`):
            What has gradients.
        seed (`int`, defaults to 0):
            The order of the projections depends on it and on the step.

    Raises:
        ImportError: If `torchjd` is not installed.
    """

    def __init__(self, method: str, parameters: Sequence[Tensor], seed: int = 0) -> None:
        self._weighting = make_weighting(method)
        self._gives_a_mean = method == "upgrad"
        self._parameters, self._seed = parameters, seed
        self._gradients: dict[str, list[Tensor | None]] = {}

    def take(self, name: str) -> None:
        """Takes the present gradients as (a further part of) those of a subnet, and leaves none behind."""
        kept = self._gradients.setdefault(name, [None] * len(self._parameters))
        for i, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                kept[i] = parameter.grad if kept[i] is None else kept[i].add_(parameter.grad)
                parameter.grad = None

    def clear(self) -> None:
        """Forgets the gradients that were taken."""
        self._gradients = {}

    def combine(self, step: int, reduce: Callable[[Tensor], Tensor]) -> None:
        """Writes the gradient of all subnets together, and forgets theirs.

        Args:
            step (`int`):
                Number of the optimizer step.
            reduce (`Callable[[Tensor], Tensor]`):
                Gives the mean of a gradient over all processes.
        """
        # In the same order in every process, since each gradient is reduced over them by itself.
        gradients = [
            [None if kept is None else reduce(kept) for kept in of_subnet] for of_subnet in self._gradients.values()
        ]
        self._gradients = {}
        weights = self._weights(gradients, step)
        for i, parameter in enumerate(self._parameters):
            parts = [(w, of_subnet[i]) for w, of_subnet in zip(weights, gradients, strict=True)]
            parts = [weight * gradient for weight, gradient in parts if gradient is not None]
            parameter.grad = torch.stack(parts).sum(dim=0) if parts else None

    def _weights(self, gradients: list[list[Tensor | None]], step: int) -> list[float]:
        """Gives the factor of each subnet's gradient."""
        products = torch.zeros(len(gradients), len(gradients), dtype=torch.float64)
        for of_parameter in zip(*gradients, strict=True):
            present = [i for i, gradient in enumerate(of_parameter) if gradient is not None]
            if present:
                rows = torch.stack([of_parameter[i].flatten().float() for i in present])
                products[torch.meshgrid(torch.tensor(present), torch.tensor(present), indexing="ij")] += (
                    rows @ rows.T
                ).cpu()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(zlib.crc32(f"surgery-{self._seed}-{step}".encode()))
            weights = self._weighting(products)
        return (weights * len(gradients) if self._gives_a_mean else weights).tolist()
