"""A converted model computes what its source computes."""

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForSequenceClassification, BertConfig, BertForMaskedLM, BertModel

from hf_elastic import convert
from hf_elastic.compression.sources import UnsupportedSourceError

from ..conftest import HEADS, first_output, make_inputs, make_labels, randomize


@pytest.mark.parametrize(("elastic_class", "bert_class"), HEADS.items())
def test_logits_equal_the_sources(elastic_class, bert_class, tiny_bert_config):
    if bert_class == "BertForQuestionAnswering":
        tiny_bert_config.num_labels = 2  # start and end
    source = randomize(getattr(transformers, bert_class)(tiny_bert_config)).eval()
    model = convert(source)
    assert type(model).__name__ == elastic_class
    assert not model.training
    inputs = {**make_inputs(bert_class), **make_labels(bert_class)}
    with torch.no_grad():
        expected, actual = source(**inputs), model(**inputs)
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("setting", [{"add_pooling_layer": False}, {}])
def test_the_pooler_is_kept_or_missing_as_in_the_source(setting, tiny_bert_config):
    source = BertModel(tiny_bert_config, **setting)
    model = convert(source)
    assert (model.pooler is None) == (source.pooler is None)
    assert model.config.add_pooling_layer == (source.pooler is not None)


@pytest.mark.parametrize(
    "settings",
    [
        {"tie_word_embeddings": False},
        {"hidden_act": "relu", "layer_norm_eps": 1e-5, "type_vocab_size": 3, "pad_token_id": 3},
    ],
)
def test_settings_that_change_the_computation_are_taken_over(settings, tiny_bert_config):
    config = BertConfig.from_dict({**tiny_bert_config.to_dict(), **settings})
    source = randomize(BertForMaskedLM(config)).eval()
    model = convert(source)
    inputs = make_inputs("BertForMaskedLM")
    torch.testing.assert_close(model(**inputs).logits, source(**inputs).logits, atol=1e-5, rtol=1e-5)
    tied = model.lm_head.decoder.weight is model.model.embeddings.word_embeddings.weight
    assert tied == config.tie_word_embeddings


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


def test_from_a_folder_as_it_was_saved_or_for_a_task(tmp_path, tiny_bert_config):
    source = randomize(BertForMaskedLM(tiny_bert_config)).eval()
    source.save_pretrained(tmp_path)
    inputs = make_inputs("BertForMaskedLM")
    torch.testing.assert_close(convert(tmp_path)(**inputs).logits, source(**inputs).logits, atol=1e-5, rtol=1e-5)

    model = convert(str(tmp_path), task="sequence-classification", num_labels=5)
    assert model.config.num_labels == 5
    hidden = source.bert(**inputs).last_hidden_state
    torch.testing.assert_close(model.model(**inputs).last_hidden_state, hidden, atol=1e-5, rtol=1e-5)


def test_a_loaded_encoder_gets_a_new_head_for_a_task(tiny_bert_config):
    source = randomize(BertModel(tiny_bert_config)).eval()
    model = convert(source, task="token-classification", num_labels=7)
    inputs = make_inputs("BertModel")
    assert model(**inputs).logits.shape == (3, 11, 7)
    torch.testing.assert_close(
        model.model(**inputs).last_hidden_state, source(**inputs).last_hidden_state, atol=1e-5, rtol=1e-5
    )
    assert source.config.num_labels == 3


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
    with pytest.raises(UnsupportedSourceError, match=r"'gpt2'.*bert \(BertModel, .*BertForMultipleChoice"):
        convert(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"is_decoder": True, "add_cross_attention": True}, "is_decoder=True"),
    ],
)
def test_a_field_that_cannot_be_expressed_is_named(settings, message, tiny_bert_config, tmp_path):
    BertConfig(**{**tiny_bert_config.to_dict(), **settings}).save_pretrained(tmp_path)  # no weights: told before
    with pytest.raises(UnsupportedSourceError, match=message):
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
