"""Tiny configurations that use what the architecture offers, for tests of what must hold for all of them."""

from hf_elastic import ElasticConfig, SubnetConfig

from .conftest import TINY

ROTARY = {"position_embedding_type": "rotary", "type_vocab_size": 0}
SLIDING = {"layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 2, "attention_block_size": 16}
# Fields that differ from the tiny BERT of the other tests.
ARCHITECTURES = {
    "bert": {},
    "modernbert": {
        **ROTARY,
        **SLIDING,
        "rope_parameters": {"full_attention": {"rope_theta": 160000.0}, "sliding_attention": {"rope_theta": 10000.0}},
        "norm_position": "pre",
        "first_attention_norm": False,
        "final_norm": True,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "gated_mlp": True,
        "classifier_pooling": "mean",
        "classifier_activation": "gelu",
        "classifier_norm": True,
        "classifier_bias": False,
        "token_transform": True,
        "lm_head_bias": False,
    },
    "electra": {"embedding_size": 16, "lm_head_activation": "gelu", "classifier_input_dropout": True},
    "roberta": {"position_embedding_type": "cumulative", "type_vocab_size": 1, "pad_token_id": 1},
    "window": {**SLIDING, "num_global_tokens": 1, "num_random_blocks": 1},
    "sparse": {"sparse_attention": True, "attention_block_size": 16},
    "linear": {"layer_types": ["full_attention", "linear_attention"] * 2},
    "shared": {"layer_groups": [0, 0, 1, 1]},
    "experts": {"num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32},
    "gated-experts": {
        "num_experts": 4,
        "num_experts_per_tok": 4,
        "intermediate_size": 32,
        "gated_mlp": True,
        "expert_weighting": "unit",
        "per_layer_config": {1: {"num_experts": 1, "num_experts_per_tok": 1, "intermediate_size": 64}},
    },
}
SUBNETS = {
    "large": SubnetConfig(),
    "base": SubnetConfig(num_attention_heads=3, hidden_size=24),
    "small": SubnetConfig(layers=(1, 2, 3), num_attention_heads=2, intermediate_size=32, hidden_size=24),
    "tiny": SubnetConfig(layers=(0, 3), num_attention_heads=1, intermediate_size=16, hidden_size=16),
}
FEWER_EXPERTS = {
    "small": {"num_experts": 3, "num_experts_per_tok": 2},
    "tiny": {"num_experts": 1, "num_experts_per_tok": 1},  # a plain network
}


def make_config(name: str, **settings) -> ElasticConfig:
    """Gives the configuration of an architecture, with four sizes that shrink along all of its axes."""
    config = ElasticConfig(**TINY | {"num_labels": 3} | ARCHITECTURES[name] | settings)
    subnets = {size: subnet.to_dict() for size, subnet in SUBNETS.items()}
    if "experts" in name:
        for size, experts in FEWER_EXPERTS.items():
            subnets[size] |= experts
    config.subnets = subnets
    return config
