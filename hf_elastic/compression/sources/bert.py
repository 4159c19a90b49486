"""BERT, and what shares its classes, such as MiniLM (Devlin et al. 2019; Wang et al. 2020)."""

from .source import START_AND_END, Head, Source

# Fields that BERT's configuration and those of its descendants share with the elastic one.
FIELDS = (
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
# Older checkpoints name the kind of positions; the current classes ignore it and would compute something else.
REQUIRED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
# The encoder of BERT and its descendants.
WEIGHTS = (
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
)
LM_HEAD = {
    "weights": (
        ("cls.predictions.transform.dense", "lm_head.dense"),
        ("cls.predictions.transform.LayerNorm", "lm_head.norm"),
        ("cls.predictions.decoder", "lm_head.decoder"),
    ),
    "aliases": {"cls.predictions.bias": "cls.predictions.decoder.bias"},
}

BERT = Source(
    model_type="bert",
    heads={
        "BertModel": Head("ElasticModel", optional_pooler=True),
        "BertForMaskedLM": Head("ElasticForMaskedLM", **LM_HEAD),
        "BertForSequenceClassification": Head("ElasticForSequenceClassification"),
        "BertForTokenClassification": Head("ElasticForTokenClassification"),
        "BertForQuestionAnswering": Head("ElasticForQuestionAnswering", required=START_AND_END),
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
            "ElasticForMaskedLM", **LM_HEAD, dropped=("bert.pooler.", "cls.seq_relationship."), invertible=False
        ),
    },
    fields=FIELDS,
    required=REQUIRED,
    weights=(("bert.", "model."), *WEIGHTS),
)
