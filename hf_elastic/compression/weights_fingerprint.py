"""What tells a model from another one with the same architecture."""

import hashlib
import json

import torch

from ..modeling.modeling_elastic import ElasticPreTrainedModel

# What a model computes besides by its weights.
_FIELDS = (
    "layer_types",
    "layer_groups",
    "sliding_window",
    "num_global_tokens",
    "num_random_blocks",
    "random_block_seeds",
    "attention_block_size",
    "dense_fallback",
    "num_experts_per_tok",
    "expert_weighting",
    "hidden_act",
    "norm_position",
    "position_embedding_type",
    "classifier_pooling",
    "rope_parameters",
)


def weights_fingerprint(model: ElasticPreTrainedModel) -> str:
    """Gives a short text that is another one for other weights or another attention, whatever sizes are named."""
    config = {name: value for name, value in model.config.to_dict().items() if name in _FIELDS}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, weight in model.state_dict().items():
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:16]
