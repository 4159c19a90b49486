"""A tiny model of every source and class, for the tests that run over all of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from ..conftest import HEADS, TINY, make_inputs, randomize


class SourceCase(NamedTuple):
    """A source in small.

    Args:
        make_config (`Callable`):
            Gives a configuration of the sizes in `TINY`; takes other fields.
        classes (`dict[str, str]`):
            The source's class for each elastic class.
    """

    make_config: Callable[..., PreTrainedConfig]
    classes: dict[str, str]


def _case(config_class: str, prefix: str, **fields: Any) -> SourceCase:
    def make_config(**others: Any) -> PreTrainedConfig:
        return getattr(transformers, config_class)(**(fields | others))

    return SourceCase(make_config, {name: bert.replace("Bert", prefix, 1) for name, bert in HEADS.items()})


# Activations and epsilons are none of the defaults, so that a field which is not read shows.
_BERT_LIKE = TINY | {"hidden_act": "relu", "layer_norm_eps": 1e-3}
SOURCES = {
    "bert": _case("BertConfig", "Bert", **_BERT_LIKE),
    "roberta": _case("RobertaConfig", "Roberta", **_BERT_LIKE, pad_token_id=2),
    "xlm-roberta": _case("XLMRobertaConfig", "XLMRoberta", **_BERT_LIKE, type_vocab_size=1),
    "camembert": _case("CamembertConfig", "Camembert", **_BERT_LIKE),
    "electra": _case("ElectraConfig", "Electra", **_BERT_LIKE, embedding_size=24, summary_activation="tanh"),
    "distilbert": _case(
        "DistilBertConfig",
        "DistilBert",
        vocab_size=TINY["vocab_size"],
        dim=TINY["hidden_size"],
        n_layers=TINY["num_hidden_layers"],
        n_heads=TINY["num_attention_heads"],
        hidden_dim=TINY["intermediate_size"],
        max_position_embeddings=TINY["max_position_embeddings"],
        activation="silu",
    ),
    "modernbert": _case(
        "ModernBertConfig",
        "ModernBert",
        **TINY,
        hidden_activation="silu",
        norm_eps=1e-3,
        local_attention=12,
        classifier_activation="relu",
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    ),
}
# Every source with every elastic class, as parameters of a test.
CASES = [(name, elastic_class) for name, case in SOURCES.items() for elastic_class in case.classes]


def make_source(name: str, elastic_class: str, **fields: Any) -> PreTrainedModel:
    """Gives a source's model with random weights, in evaluation mode, that fits `make_labels`.

    Args:
        name: Key of `SOURCES`.
        elastic_class: Name of the elastic class that the model becomes.
        fields: Other fields of its configuration.
    """
    case = SOURCES[name]
    num_labels = 2 if elastic_class == "ElasticForQuestionAnswering" else 3  # start and end
    config = case.make_config(**({"num_labels": num_labels} | fields))
    return randomize(getattr(transformers, case.classes[elastic_class])(config)).eval()


def make_padded_inputs(name: str, elastic_class: str, side: str = "right", seed: int = 0) -> dict[str, torch.Tensor]:
    """Gives padded inputs that a source's model takes: batch 3, length 11, or as many choices of two.

    Args:
        name: Key of `SOURCES`.
        elastic_class: Name of the elastic class that the model becomes.
        side: Where the padding is, `"right"` or `"left"`.
        seed: Seed of the tokens.
    """
    config = SOURCES[name].make_config()
    inputs = make_inputs(elastic_class, seed)
    if side == "left":
        inputs = {key: value.flip(-1) for key, value in inputs.items()}
    mask = inputs["attention_mask"]
    inputs["input_ids"] = inputs["input_ids"] * mask + config.pad_token_id * (1 - mask)
    types = getattr(config, "type_vocab_size", 0)
    if types:
        inputs["token_type_ids"] = inputs["token_type_ids"] % types
    else:
        del inputs["token_type_ids"]
    return inputs
