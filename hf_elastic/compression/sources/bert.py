"""BERT, and what shares its classes, such as MiniLM (Devlin et al. 2019; Wang et al. 2020)."""

from typing import Any

from transformers import PreTrainedConfig

from .source import Head, Source, UnsupportedSourceError

# Fields that both configurations have under one name.
SHARED_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "classifier_dropout",
    "tie_word_embeddings",
)
DECODER_BIAS = {"cls.predictions.bias": "cls.predictions.decoder.bias"}


def elastic_settings(config: PreTrainedConfig) -> dict[str, Any]:
    """Gives the fields of the elastic configuration; see [`Source`]."""
    # Older checkpoints name the kind of positions; the current class ignores it and would compute something else.
    positions = getattr(config, "position_embedding_type", "absolute")
    if positions != "absolute":
        raise UnsupportedSourceError(
            f"position_embedding_type={positions!r} cannot be converted, only 'absolute' positions can."
        )
    for name in ("is_decoder", "add_cross_attention"):
        if getattr(config, name, False):
            raise UnsupportedSourceError(f"{name}=True cannot be converted, only encoders can: set {name}=False.")
    if config.is_heterogeneous:
        raise UnsupportedSourceError(
            "per_layer_config is set, but the layers of a BERT checkpoint are all of one size: remove it."
        )
    return {name: getattr(config, name) for name in SHARED_FIELDS}


def stock_settings(config: PreTrainedConfig) -> dict[str, Any]:
    """Gives the fields of `BertConfig` for a member; see [`Source`]."""
    sizes = config.layer_sizes()
    widths = {size.intermediate_size for size in sizes}
    if len(widths) > 1:
        raise ValueError(
            f"intermediate_size differs between layers ({sorted(widths)}), and BERT has one for all: choose a subnet "
            "with one number."
        )
    for size in sizes:
        if size.num_attention_heads * config.head_dim != config.hidden_size:
            raise ValueError(
                f"num_attention_heads={size.num_attention_heads} in layer {size.layer}: BERT needs all "
                f"{config.hidden_size // config.head_dim} heads of head_dim={config.head_dim} (hidden_size="
                f"{config.hidden_size}). Choose a subnet that keeps all heads."
            )
    uniform = {"num_attention_heads": sizes[0].num_attention_heads, "intermediate_size": sizes[0].intermediate_size}
    return uniform | {name: getattr(config, name) for name in SHARED_FIELDS if name not in uniform}


BERT = Source(
    model_type="bert",
    heads={
        "BertModel": Head("ElasticModel"),
        "BertForMaskedLM": Head("ElasticForMaskedLM", aliases=DECODER_BIAS),
        "BertForSequenceClassification": Head("ElasticForSequenceClassification"),
        "BertForTokenClassification": Head("ElasticForTokenClassification"),
        "BertForQuestionAnswering": Head("ElasticForQuestionAnswering"),
        "BertForMultipleChoice": Head("ElasticForMultipleChoice"),
        # The two pretraining objectives: next sentence prediction is a classifier of two labels without dropout ...
        "BertForNextSentencePrediction": Head(
            "ElasticForSequenceClassification",
            {"classifier_dropout": 0.0},
            weights=(("cls.seq_relationship", "classifier"),),
            invertible=False,
        ),
        # ... and of the model that has both heads, masked language modeling is what training goes on with.
        "BertForPreTraining": Head(
            "ElasticForMaskedLM",
            aliases=DECODER_BIAS,
            dropped=("bert.pooler.", "cls.seq_relationship."),
            invertible=False,
        ),
    },
    weights=(
        ("bert.", "model."),
        ("embeddings.LayerNorm", "embeddings.norm"),
        ("encoder.layer.", "layers."),
        ("attention.self.query", "attention.q_proj"),
        ("attention.self.key", "attention.k_proj"),
        ("attention.self.value", "attention.v_proj"),
        ("attention.output.dense", "attention.o_proj"),
        ("attention.output.LayerNorm", "attention_norm"),
        ("intermediate.dense", "mlp.up_proj"),
        ("output.dense", "mlp.down_proj"),
        ("output.LayerNorm", "mlp_norm"),
        ("cls.predictions.transform.dense", "lm_head.dense"),
        ("cls.predictions.transform.LayerNorm", "lm_head.norm"),
        ("cls.predictions.decoder", "lm_head.decoder"),
    ),
    elastic_settings=elastic_settings,
    stock_settings=stock_settings,
)
