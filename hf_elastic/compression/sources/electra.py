"""ELECTRA (Clark et al. 2020): BERT with embeddings of another size, trained to find the tokens that were replaced."""

from .bert import FIELDS, REQUIRED, WEIGHTS
from .source import START_AND_END, Head, Source

ELECTRA = Source(
    model_type="electra",
    heads={
        "ElectraModel": Head("ElasticModel", {"add_pooling_layer": False}),
        "ElectraForMaskedLM": Head(
            "ElasticForMaskedLM",
            weights=(
                ("generator_predictions.dense", "lm_head.dense"),
                ("generator_predictions.LayerNorm", "lm_head.norm"),
                ("generator_lm_head", "lm_head.decoder"),
            ),
        ),
        "ElectraForSequenceClassification": Head(
            "ElasticForSequenceClassification",
            weights=(("classifier.dense", "electra.pooler.dense"), ("classifier.out_proj", "classifier")),
        ),
        "ElectraForTokenClassification": Head("ElasticForTokenClassification"),
        # The discriminator, which the published checkpoints are: its one label says that a token was replaced.
        "ElectraForPreTraining": Head(
            "ElasticForTokenClassification",
            {
                "token_transform": True,
                "classifier_dropout": 0.0,
                "id2label": {0: "replaced"},
                "label2id": {"replaced": 0},
            },
            fields=(("hidden_act", "classifier_activation"),),
            weights=(
                ("discriminator_predictions.dense_prediction", "classifier"),
                ("discriminator_predictions.dense", "head.dense"),
            ),
        ),
        "ElectraForQuestionAnswering": Head("ElasticForQuestionAnswering", required=START_AND_END),
        "ElectraForMultipleChoice": Head(
            "ElasticForMultipleChoice",
            {"classifier_input_dropout": False},
            fields=(("summary_activation", "classifier_activation"), ("summary_last_dropout", "classifier_dropout")),
            required={"summary_type": "first", "summary_use_proj": True, "summary_proj_to_labels": False},
            weights=(("sequence_summary.summary", "electra.pooler.dense"),),
        ),
    },
    fields=(*FIELDS, "embedding_size"),
    settings={"lm_head_activation": "gelu", "classifier_activation": "gelu", "classifier_input_dropout": True},
    required=REQUIRED,
    weights=(("electra.", "model."), ("embeddings_project", "embeddings.projection"), *WEIGHTS),
)
