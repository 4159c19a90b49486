"""What a source's class can express and what not; test_sources.py has that the outputs are the same."""

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

from hf_elastic import (
    ElasticConfig,
    ElasticForMaskedLM,
    ElasticForTokenClassification,
    ElasticModel,
    SubnetConfig,
    convert,
    extract,
    to_stock,
)

from ..conftest import make_inputs, randomize
from .sources import make_source


def test_without_a_pooler(tiny_bert_config):
    member = convert(randomize(BertModel(tiny_bert_config, add_pooling_layer=False)))
    assert to_stock(member).pooler is None


def test_a_subclass_of_the_users_goes_back_too(tiny_bert_config):
    class MyModel(ElasticModel):
        pass

    member = MyModel(convert(BertModel(tiny_bert_config)).config)
    assert type(to_stock(member)) is BertModel


def test_labels_are_kept(tiny_bert_config):
    tiny_bert_config.id2label = {0: "no", 1: "yes", 2: "maybe"}
    stock = to_stock(convert(BertForSequenceClassification(tiny_bert_config)))
    assert stock.config.id2label == {0: "no", 1: "yes", 2: "maybe"}


def test_layers_that_share_weights_get_copies(tiny_bert_config):
    fields = convert(BertForMaskedLM(tiny_bert_config)).config.to_dict()
    member = randomize(ElasticForMaskedLM(ElasticConfig(**(fields | {"layer_groups": [0, 1, 0, 2]})))).eval()
    stock = to_stock(member)
    first, third = (stock.bert.encoder.layer[layer].output.dense.weight for layer in (0, 2))
    assert torch.equal(first, third)
    assert first is not third
    inputs = make_inputs("BertForMaskedLM")
    torch.testing.assert_close(stock(**inputs).logits, member(**inputs).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "subnet", "message"),
    [
        (
            "bert",
            SubnetConfig(num_attention_heads=3),
            "num_attention_heads=3 of head_dim=8 .*hidden_size=32, as bert needs: .*hidden_size=24.* keeps 4 heads",
        ),
        ("roberta", SubnetConfig(hidden_size=16), "num_attention_heads=4 .*hidden_size=16.* keeps 2 heads"),
        (
            "electra",
            SubnetConfig(num_attention_heads=3, hidden_size=24),
            "embedding_projection=True .*ElectraModel.*: choose a subnet with another hidden_size than 24",
        ),
        ("electra", SubnetConfig(num_attention_heads=(4, 4, 2, 4)), r"num_attention_heads differs .*\(\[2, 4\]\)"),
        (
            "distilbert",
            SubnetConfig(intermediate_size=(64, 32, 64, 64)),
            r"intermediate_size differs between layers \(\[32, 64\]\)",
        ),
        ("modernbert", SubnetConfig(layers=(1, 3)), "first_attention_norm=True .*ModernBertModel.*keeps layer 0"),
    ],
)
def test_a_size_that_stands_in_the_way_is_named(name, subnet, message):
    member = extract(convert(make_source(name, "ElasticModel")), subnet)
    with pytest.raises(ValueError, match=message):
        to_stock(member)


@pytest.mark.parametrize(
    ("name", "elastic_class", "fields", "message"),
    [
        ("bert", "ElasticModel", {"num_experts": 2}, "num_experts=2 cannot .*BertModel, which has num_experts=1"),
        (
            "bert",
            "ElasticModel",
            {"layer_types": ["linear_attention"] * 4},
            "'linear_attention' for layer 0",
        ),
        ("modernbert", "ElasticModel", {"num_global_tokens": 1}, "num_global_tokens=1 cannot"),
        (
            "roberta",
            "ElasticForMaskedLM",
            {"position_embedding_type": "absolute"},
            "position_embedding_type='absolute'",
        ),
        ("roberta", "ElasticForMaskedLM", {"lm_head_activation": "relu"}, "lm_head_activation='relu'.*`task`"),
        ("electra", "ElasticForTokenClassification", {"token_transform": True}, "token_transform=True .*`task`"),
        ("electra", "ElasticModel", {"add_pooling_layer": True}, "add_pooling_layer=True cannot .*ElectraModel"),
        ("distilbert", "ElasticForSequenceClassification", {"classifier_activation": "tanh"}, "activation='tanh'"),
    ],
)
def test_a_setting_that_stands_in_the_way_is_named(name, elastic_class, fields, message):
    model = convert(make_source(name, elastic_class))
    member = type(model)(ElasticConfig(**(model.config.to_dict() | fields)))
    with pytest.raises(ValueError, match=message):
        to_stock(member)


def test_a_setting_that_the_class_does_not_read_is_no_obstacle(tiny_bert_config):
    fields = {"classifier_activation": "relu", "lm_head_activation": "relu", "sliding_window": 5, "unpad_inputs": True}
    config = convert(BertForTokenClassification(tiny_bert_config)).config
    member = randomize(ElasticForTokenClassification(ElasticConfig(**(config.to_dict() | fields)))).eval()
    inputs = make_inputs("BertForTokenClassification")
    del inputs["attention_mask"]
    torch.testing.assert_close(to_stock(member)(**inputs).logits, member(**inputs).logits, atol=1e-5, rtol=1e-5)


def test_a_model_without_a_source_is_refused(tiny_config):
    with pytest.raises(ValueError, match="source_model_type=None"):
        to_stock(ElasticModel(tiny_config))


def test_minilm_is_given_back_weight_by_weight(minilm):
    source = AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=5)
    given_back = to_stock(convert(source)).state_dict()
    assert given_back.keys() == source.state_dict().keys()
    for name, weight in source.state_dict().items():
        assert torch.equal(given_back[name], weight), name
