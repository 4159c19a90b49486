"""Members go back to the source's own class where it can express them."""

import pytest
import torch
import transformers
from transformers import AutoModelForSequenceClassification, BertForMaskedLM, BertForSequenceClassification, BertModel

from hf_elastic import ElasticModel, SubnetConfig, convert, extract, to_stock

from ..conftest import HEADS, first_output, make_inputs, randomize


@pytest.mark.parametrize(("elastic_class", "bert_class"), HEADS.items())
@pytest.mark.parametrize("subnet", [None, SubnetConfig(layers=(0, 2, 3), intermediate_size=32)])
def test_same_outputs_in_the_stock_class(elastic_class, bert_class, subnet, tiny_bert_config, tmp_path):
    if bert_class == "BertForQuestionAnswering":
        tiny_bert_config.num_labels = 2
    model = convert(randomize(getattr(transformers, bert_class)(tiny_bert_config)).eval())
    member = extract(model, subnet)
    stock = to_stock(member)
    assert type(stock) is getattr(transformers, bert_class)
    inputs = make_inputs(bert_class)
    torch.testing.assert_close(first_output(stock(**inputs)), first_output(member(**inputs)), atol=1e-5, rtol=1e-5)

    stock.save_pretrained(tmp_path)
    loaded, report = type(stock).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    torch.testing.assert_close(first_output(loaded(**inputs)), first_output(stock(**inputs)))


def test_without_a_pooler(tiny_bert_config):
    member = convert(randomize(BertModel(tiny_bert_config, add_pooling_layer=False)))
    assert to_stock(member).pooler is None


@pytest.mark.parametrize("tied", [True, False])
def test_the_masked_language_modeling_head(tied, tiny_bert_config):
    tiny_bert_config.tie_word_embeddings = tied
    source = randomize(BertForMaskedLM(tiny_bert_config)).eval()
    stock = to_stock(convert(source))
    assert (stock.cls.predictions.decoder.weight is stock.bert.embeddings.word_embeddings.weight) == tied
    inputs = make_inputs("BertForMaskedLM")
    torch.testing.assert_close(stock(**inputs).logits, source(**inputs).logits, atol=1e-5, rtol=1e-5)


def test_a_subclass_of_the_users_goes_back_too(tiny_bert_config):
    class MyModel(ElasticModel):
        pass

    member = MyModel(convert(BertModel(tiny_bert_config)).config)
    assert type(to_stock(member)) is BertModel


def test_labels_are_kept(tiny_bert_config):
    tiny_bert_config.id2label = {0: "no", 1: "yes", 2: "maybe"}
    stock = to_stock(convert(BertForSequenceClassification(tiny_bert_config)))
    assert stock.config.id2label == {0: "no", 1: "yes", 2: "maybe"}


@pytest.mark.parametrize(
    ("subnet", "message"),
    [
        (SubnetConfig(num_attention_heads=3), "num_attention_heads=3 in layer 0"),
        (SubnetConfig(num_attention_heads=(4, 4, 2, 4)), "num_attention_heads=2 in layer 2"),
        (SubnetConfig(intermediate_size=(64, 32, 64, 64)), r"intermediate_size differs between layers \(\[32, 64\]\)"),
    ],
)
def test_the_setting_that_stands_in_the_way_is_named(subnet, message, tiny_bert_config):
    member = extract(convert(BertModel(tiny_bert_config)), subnet)
    with pytest.raises(ValueError, match=message):
        to_stock(member)


def test_a_model_without_a_source_is_refused(tiny_config):
    with pytest.raises(ValueError, match="source_model_type=None"):
        to_stock(ElasticModel(tiny_config))


def test_minilm_is_given_back_weight_by_weight(minilm):
    source = AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=5)
    given_back = to_stock(convert(source)).state_dict()
    assert given_back.keys() == source.state_dict().keys()
    for name, weight in source.state_dict().items():
        assert torch.equal(given_back[name], weight), name
