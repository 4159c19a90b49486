"""Giving a model copies of another one's weights."""

from collections.abc import Mapping

import torch
from transformers import PreTrainedModel


def load_copies(model: PreTrainedModel, weights: Mapping[str, torch.Tensor]) -> None:
    """Replaces all weights of a model by copies of others, in the data types and on the devices that these have.

    Args:
        model (`PreTrainedModel`):
            The model that gets the weights; weights that it ties are tied again.
        weights (`Mapping[str, torch.Tensor]`):
            Exactly its weights by name.

    Raises:
        RuntimeError: If a weight is missing, unexpected, or of another shape.
    """
    model.load_state_dict({name: weight.detach().clone() for name, weight in weights.items()}, assign=True)
    model.tie_weights()
