"""ModernBERT (Warner et al. 2024): norms first, rotary positions, windows, gated networks, and no biases."""

from .source import START_AND_END, Head, Source

POOLING_HEAD = {"weights": (("head.", "model.pooler."),)}

MODERNBERT = Source(
    model_type="modernbert",
    heads={
        "ModernBertModel": Head("ElasticModel", {"add_pooling_layer": False}),
        "ModernBertForMaskedLM": Head(
            "ElasticForMaskedLM", weights=(("head.", "lm_head."), ("decoder.", "lm_head.decoder."))
        ),
        "ModernBertForSequenceClassification": Head("ElasticForSequenceClassification", **POOLING_HEAD),
        "ModernBertForTokenClassification": Head("ElasticForTokenClassification"),
        "ModernBertForQuestionAnswering": Head(
            "ElasticForQuestionAnswering", required=START_AND_END, weights=(("classifier.", "qa_outputs."),)
        ),
        "ModernBertForMultipleChoice": Head(
            "ElasticForMultipleChoice", {"pooling_skips_padding": True}, **POOLING_HEAD
        ),
    },
    fields=(
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        ("hidden_activation", "hidden_act"),
        "max_position_embeddings",
        "initializer_range",
        ("norm_eps", "layer_norm_eps"),
        "norm_bias",
        "attention_bias",
        "mlp_bias",
        "decoder_bias",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "layer_types",
        "sliding_window",
        "rope_parameters",
        ("attention_dropout", "attention_probs_dropout_prob"),
        # It drops attention's outputs, embeddings and neurons by three probabilities.
        ("attention_dropout", "hidden_dropout_prob"),
        ("embedding_dropout", "hidden_dropout_prob"),
        ("mlp_dropout", "hidden_dropout_prob"),
        "classifier_pooling",
        # All its heads have one form, in front of the decoder as well.
        "classifier_dropout",
        ("classifier_dropout", "qa_dropout"),
        "classifier_bias",
        ("classifier_bias", "lm_head_bias"),
        "classifier_activation",
        ("classifier_activation", "lm_head_activation"),
        "tie_word_embeddings",
    ),
    settings={
        "type_vocab_size": 0,
        "position_embedding_type": "rotary",
        "norm_position": "pre",
        "first_attention_norm": False,
        "final_norm": True,
        "gated_mlp": True,
        "classifier_norm": True,
        "token_transform": True,
    },
    layer_types=("full_attention", "sliding_attention"),
    weights=(
        ("tok_embeddings", "word_embeddings"),
        ("attn_norm", "attention_norm"),
        ("attn.", "attention."),
        ("attention.Wo", "attention.o_proj"),
        ("mlp.Wo", "mlp.down_proj"),
    ),
    fused=(
        ("attention.Wqkv", ("attention.q_proj", "attention.k_proj", "attention.v_proj")),
        ("mlp.Wi", ("mlp.gate_proj", "mlp.up_proj")),
    ),
)
