"""DistilBERT (Sanh et al. 2019): BERT without token types, under names of its own.

A table of sinusoidal positions (`sinusoidal_pos_embds`) is one of learned positions that was initialized so.
"""

from .source import START_AND_END, Head, Source

PRE_CLASSIFIER = {
    "fields": (("seq_classif_dropout", "classifier_dropout"),),
    "weights": (("pre_classifier", "distilbert.pooler.dense"),),
}

DISTILBERT = Source(
    model_type="distilbert",
    heads={
        "DistilBertModel": Head("ElasticModel", {"add_pooling_layer": False}),
        "DistilBertForMaskedLM": Head(
            "ElasticForMaskedLM",
            weights=(
                ("vocab_transform", "lm_head.dense"),
                ("vocab_layer_norm", "lm_head.norm"),
                ("vocab_projector", "lm_head.decoder"),
            ),
        ),
        "DistilBertForSequenceClassification": Head("ElasticForSequenceClassification", **PRE_CLASSIFIER),
        "DistilBertForTokenClassification": Head("ElasticForTokenClassification"),
        "DistilBertForQuestionAnswering": Head("ElasticForQuestionAnswering", required=START_AND_END),
        "DistilBertForMultipleChoice": Head("ElasticForMultipleChoice", **PRE_CLASSIFIER),
    },
    fields=(
        "vocab_size",
        ("dim", "hidden_size"),
        ("n_layers", "num_hidden_layers"),
        ("n_heads", "num_attention_heads"),
        ("hidden_dim", "intermediate_size"),
        ("activation", "hidden_act"),
        ("dropout", "hidden_dropout_prob"),
        ("attention_dropout", "attention_probs_dropout_prob"),
        "qa_dropout",
        "max_position_embeddings",
        "initializer_range",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "tie_word_embeddings",
    ),
    settings={"type_vocab_size": 0, "layer_norm_eps": 1e-12, "classifier_activation": "relu"},
    weights=(
        ("distilbert.", "model."),
        ("embeddings.LayerNorm", "embeddings.norm"),
        ("transformer.layer.", "layers."),
        ("attention.q_lin", "attention.q_proj"),
        ("attention.k_lin", "attention.k_proj"),
        ("attention.v_lin", "attention.v_proj"),
        ("attention.out_lin", "attention.o_proj"),
        ("sa_layer_norm", "attention_norm"),
        ("ffn.lin1", "mlp.up_proj"),
        ("ffn.lin2", "mlp.down_proj"),
        ("output_layer_norm", "mlp_norm"),
    ),
)
