"""Sizes that keep the most important units of all layers together, rather than as many in each."""

import torch

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.subnet_elastic import LayerSize
from .rank import Importance


def sizes_by_importance(
    config: ElasticConfig, importance: Importance, share: float, num_layers: int | None = None
) -> list[LayerSize]:
    """Gives each layer as many heads and neurons as it has among the most important ones of the model.

    Args:
        config ([`ElasticConfig`]):
            Configuration of the supernet.
        importance ([`~hf_elastic.compression.rank.Importance`]):
            Scores of its units, which have to be in order of importance.
        share (`float`):
            Part of all heads and of all neurons that is kept, in (0, 1].
        num_layers (`int`, *optional*):
            Number of layers that are kept: those whose units have the largest sum of scores. All by default.

    Returns:
        `list[LayerSize]`: Layers with at least one head and one neuron each, not rounded to widths that are fast.
    """
    heads = _kept([scores.float() for scores in importance.heads], share)
    # Of experts, a neuron's score is the mean over them, since all keep as many.
    neurons = _kept(
        [
            scores.float().flatten(0, -2).mean(0) if scores.dim() > 1 else scores.float()
            for scores in importance.neurons
        ],
        share,
    )
    full = config.layer_sizes()
    sums = [float(h.sum() + n.sum()) for h, n in zip(importance.heads, importance.neurons, strict=True)]
    best_first = sorted(full, key=lambda size: -sums[size.weights])
    kept = {size.layer for size in best_first[: num_layers or len(full)]}
    return [
        size._replace(num_attention_heads=heads[size.weights], intermediate_size=neurons[size.weights])
        for size in full
        if size.layer in kept
    ]


def _kept(scores: list[torch.Tensor], share: float) -> list[int]:
    """Counts the best units of each layer among all: as many as are a share of them, but at least one."""
    together = torch.cat(scores)
    number = max(1, round(share * len(together)))
    least = together.sort(descending=True).values[number - 1]
    return [max(1, int((of_layer >= least).sum())) for of_layer in scores]
