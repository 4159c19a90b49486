"""What convert does beside computing the same, which test_sources.py has for all sources."""

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForSequenceClassification, BertForMaskedLM, BertModel

from hf_elastic import convert
from hf_elastic.compression.sources import UnsupportedSourceError

from ..conftest import first_output, make_inputs, randomize


@pytest.mark.parametrize("setting", [{"add_pooling_layer": False}, {}])
def test_the_pooler_is_kept_or_missing_as_in_the_source(setting, tiny_bert_config):
    source = BertModel(tiny_bert_config, **setting)
    model = convert(source)
    assert (model.pooler is None) == (source.pooler is None)
    assert model.config.add_pooling_layer == (source.pooler is not None)


def test_the_source_keeps_its_own_weights(tiny_bert_config):
    source = BertModel(tiny_bert_config)
    model = convert(source)
    before = source.embeddings.word_embeddings.weight.clone()
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.zero_()
    assert torch.equal(source.embeddings.word_embeddings.weight, before)


def test_next_sentence_prediction_becomes_a_classifier(tiny_bert_config):
    source = randomize(transformers.BertForNextSentencePrediction(tiny_bert_config)).eval()
    source.config.id2label = {0: "next", 1: "random"}
    model = convert(source)
    inputs = make_inputs("BertModel")
    torch.testing.assert_close(model(**inputs).logits, source(**inputs).logits, atol=1e-5, rtol=1e-5)


def test_the_pretraining_model_becomes_a_masked_language_model(tiny_bert_config):
    source = randomize(transformers.BertForPreTraining(tiny_bert_config)).eval()
    inputs = make_inputs("BertModel")
    expected = source(**inputs).prediction_logits
    for model in (convert(source), convert(source, task="masked-lm")):
        torch.testing.assert_close(model(**inputs).logits, expected, atol=1e-5, rtol=1e-5)


def test_label_maps_and_problem_type_are_kept(tiny_bert_config):
    tiny_bert_config.id2label = {0: "no", 1: "yes", 2: "maybe"}
    tiny_bert_config.label2id = {"no": 0, "yes": 1, "maybe": 2}
    tiny_bert_config.problem_type = "multi_label_classification"
    config = convert(transformers.BertForSequenceClassification(tiny_bert_config)).config
    assert config.id2label == {0: "no", 1: "yes", 2: "maybe"}
    assert config.label2id == {"no": 0, "yes": 1, "maybe": 2}
    assert config.problem_type == "multi_label_classification"
    assert config.source_model_type == "bert"


def test_a_head_is_left_off_for_feature_extraction(tiny_bert_config):
    source = randomize(BertForMaskedLM(tiny_bert_config)).eval()
    inputs = make_inputs("BertModel")
    torch.testing.assert_close(
        first_output(convert(source, task="feature-extraction")(**inputs)),
        first_output(source.bert(**inputs)),
        atol=1e-5,
        rtol=1e-5,
    )


def test_every_weight_keeps_its_data_type(tiny_bert_config):
    source = transformers.BertForSequenceClassification(tiny_bert_config).to(torch.bfloat16)
    source.classifier.float()
    model = convert(source)
    assert model.classifier.weight.dtype == torch.float32
    assert model.model.embeddings.word_embeddings.weight.dtype == torch.bfloat16


def test_the_attention_implementation_is_kept(tiny_bert_config):
    source = BertModel(tiny_bert_config)
    source.set_attn_implementation("eager")
    assert convert(source).config._attn_implementation == "eager"


def test_the_source_is_remembered_after_saving(tmp_path, tiny_bert_config):
    BertModel(tiny_bert_config).save_pretrained(tmp_path / "my-bert")
    convert(tmp_path / "my-bert").save_pretrained(tmp_path / "supernet")
    assert AutoConfig.from_pretrained(tmp_path / "supernet").source_name_or_path == "my-bert"
    source = BertModel(tiny_bert_config)
    for name, remembered in {
        "google-bert/bert-base-uncased": "google-bert/bert-base-uncased",
        "bert-base-uncased": "bert-base-uncased",
        "/somewhere/gone/my-bert": "my-bert",
        "": None,
    }.items():
        source.config.name_or_path = name
        assert convert(source).config.source_name_or_path == remembered


def test_data_type_and_mode_are_kept(tiny_bert_config):
    model = convert(BertModel(tiny_bert_config).to(torch.bfloat16).train())
    assert model.dtype == torch.bfloat16
    assert model.training


def test_an_unsupported_type_is_named_with_what_is_supported(tmp_path):
    transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedSourceError, match="'gpt2' cannot.* bert, .*modernbert"):
        convert(tmp_path)


def test_an_elastic_checkpoint_is_not_converted_again(classifier, tmp_path):
    classifier.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedSourceError, match="elastic already"):
        convert(tmp_path)


def test_a_class_that_is_no_encoder_is_named(tiny_bert_config):
    with pytest.raises(UnsupportedSourceError, match="BertLMHeadModel cannot be converted"):
        convert(transformers.BertLMHeadModel(tiny_bert_config))


def test_an_unknown_task_is_named():
    with pytest.raises(ValueError, match="'translation'.*'masked-lm'"):
        convert("anything", task="translation")


def test_settings_that_would_be_ignored_are_refused(tiny_bert_config):
    source = transformers.BertForSequenceClassification(tiny_bert_config)
    with pytest.raises(ValueError, match="num_labels"):
        convert(source, task="sequence-classification", num_labels=9)
    with pytest.raises(ValueError, match="BertConfig has no field 'num_lables', which was to be 9"):
        convert(source, task="token-classification", num_lables=9)


def test_anything_else_is_refused():
    with pytest.raises(TypeError, match="Linear"):
        convert(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("num_labels", [2, 5])
def test_minilm(minilm, num_labels):
    source = AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=num_labels).eval()
    model = convert(source)
    input_ids = torch.randint(1000, 20000, (2, 128))
    mask = torch.ones_like(input_ids)
    mask[1, 40:] = 0
    with torch.no_grad():
        torch.testing.assert_close(
            model(input_ids, attention_mask=mask).logits,
            source(input_ids, attention_mask=mask).logits,
            atol=1e-5,
            rtol=1e-5,
        )
