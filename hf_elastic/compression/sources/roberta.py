"""RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020).

What sets them apart from BERT: positions are counted over the tokens that are not padding, and a sequence classifier
brings the layer in front of it along, instead of taking the pooler's output.
"""

from .bert import FIELDS, REQUIRED, WEIGHTS
from .source import START_AND_END, Head, Source


def _source(model_type: str, prefix: str) -> Source:
    """Gives the source whose classes have names that begin with `prefix`."""
    return Source(
        model_type=model_type,
        heads={
            f"{prefix}Model": Head("ElasticModel", {"classifier_input_dropout": False}, optional_pooler=True),
            f"{prefix}ForMaskedLM": Head(
                "ElasticForMaskedLM",
                weights=(("lm_head.layer_norm", "lm_head.norm"),),
                aliases={"lm_head.bias": "lm_head.decoder.bias"},
            ),
            f"{prefix}ForSequenceClassification": Head(
                "ElasticForSequenceClassification",
                weights=(("classifier.dense", "roberta.pooler.dense"), ("classifier.out_proj", "classifier")),
            ),
            f"{prefix}ForTokenClassification": Head("ElasticForTokenClassification"),
            f"{prefix}ForQuestionAnswering": Head("ElasticForQuestionAnswering", required=START_AND_END),
            f"{prefix}ForMultipleChoice": Head(
                "ElasticForMultipleChoice", {"classifier_input_dropout": False, "classifier_dropout": None}
            ),
        },
        fields=FIELDS,
        settings={
            "position_embedding_type": "cumulative",
            "lm_head_activation": "gelu",
            "classifier_input_dropout": True,
        },
        required=REQUIRED,
        weights=(("roberta.", "model."), *WEIGHTS),
    )


ROBERTA = _source("roberta", "Roberta")
XLM_ROBERTA = _source("xlm-roberta", "XLMRoberta")
CAMEMBERT = _source("camembert", "Camembert")
