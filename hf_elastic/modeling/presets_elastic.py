"""Standard sizes of encoders, and others in proportion to a given one."""

import math
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

# Sizes of the compact BERT models (Turc et al. 2019, https://arxiv.org/abs/1908.08962) and of BERT itself (Devlin et
# al. 2019): layers and hidden size. Heads have 64 dimensions in all of them, and four neurons stand for each feature.
PRESETS = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
PRESET_HEAD_DIM = 64


def preset_fields(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Gives the fields of a standard size, in which given ones take precedence."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(f"Unknown preset {name!r}: possible are {list(PRESETS)}.")
    num_layers, hidden_size = PRESETS[name]
    hidden_size = fields.get("hidden_size", hidden_size)
    sizes = {"num_hidden_layers": num_layers, "hidden_size": hidden_size, "intermediate_size": 4 * hidden_size}
    if "num_attention_heads" not in fields:
        head_dim = fields.get("head_dim", PRESET_HEAD_DIM)
        if head_dim < 1 or hidden_size % head_dim:
            raise ValueError(
                f"hidden_size={hidden_size} is not a multiple of head_dim={head_dim}: give num_attention_heads too."
            )
        sizes |= {"num_attention_heads": hidden_size // head_dim, "head_dim": head_dim}
    return sizes | fields


def scaled_fields(config: PreTrainedConfig, width: float, depth: float) -> dict[str, Any]:
    """Gives the fields of a larger or smaller supernet, see [`~ElasticConfig.scaled`]."""
    for name, multiplier in (("width", width), ("depth", depth)):
        if not isinstance(multiplier, int | float) or not 0 < multiplier < math.inf:
            raise ValueError(f"{name}={multiplier!r}: a multiplier must be a positive number.")
    if config.is_heterogeneous or config.layer_groups is not None:
        name = "per_layer_config" if config.is_heterogeneous else "layer_groups"
        raise ValueError(f"{name} is set: scale the configuration before its layers are told apart.")
    heads = max(1, int(width * config.num_attention_heads + 0.5))
    width = heads / config.num_attention_heads
    layers = max(1, int(depth * config.num_hidden_layers + 0.5))
    values = config.to_dict()
    values.update(
        num_attention_heads=heads,
        hidden_size=round(width * config.hidden_size),
        intermediate_size=round(width * config.intermediate_size),
        embedding_size=config.embedding_size if config.embedding_projection else None,
        random_block_seeds=None,
        num_hidden_layers=layers,
        layer_types=_continued(config.layer_types, layers),
        subnets={},
    )
    return values


def _continued(layer_types: list[str], length: int) -> list[str]:
    """Cuts a list of layer types, or goes on with its shortest repeated pattern."""
    period = next(p for p in range(1, len(layer_types) + 1) if layer_types[p:] == layer_types[:-p])
    return [layer_types[layer % period] for layer in range(length)]


__all__ = ["preset_fields", "scaled_fields"]
