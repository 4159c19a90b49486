"""Opening checkpoints of either kind, and what they say about their labels and sizes."""

import pytest
import torch
from transformers import AutoTokenizer

from hf_elastic import ElasticForMaskedLM, ElasticForSequenceClassification, SubnetConfig, convert, extract
from hf_elastic.checkpoints import (
    expected_labels,
    load_elastic,
    load_supernet,
    load_tokenizer,
    named_subnets,
    save_with_tokenizer,
)
from tests.tiny_bert import save_tiny_bert

NAMES = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}


@pytest.fixture
def bert(tmp_path):
    def save(class_name, **settings):
        return save_tiny_bert(tmp_path / class_name, ["the quick brown fox"], class_name, **settings)

    return save


def test_an_elastic_checkpoint_loads_in_its_own_class(bert, tmp_path):
    model = convert(bert("BertForMaskedLM"))
    model.config.subnets = {"half": SubnetConfig.scaled(model.config, depth=0.5)}
    model.save_pretrained(tmp_path / "supernet")
    extract(model, "half").save_pretrained(tmp_path / "member")
    for folder, layers in (("supernet", 4), ("member", 2)):
        loaded = load_elastic(tmp_path / folder)
        assert type(loaded) is ElasticForMaskedLM
        assert loaded.config.num_hidden_layers == layers
    assert list(named_subnets(tmp_path / "supernet")) == ["half"]
    assert not named_subnets(tmp_path / "member")


def test_another_checkpoint_is_an_error_with_the_remedy(bert, tmp_path):
    with pytest.raises(ValueError, match="is a checkpoint of type 'bert', not an elastic one: convert it first"):
        load_elastic(bert("BertModel"))
    assert named_subnets(bert("BertModel")) == {}
    with pytest.raises(OSError, match="no-such-model is no folder here"):
        load_elastic(tmp_path / "no-such-model")


def test_a_classifier_comes_from_either_kind_of_checkpoint(bert, tmp_path):
    source = bert("BertModel")
    convert(source).save_pretrained(tmp_path / "supernet")
    for folder in (source, tmp_path / "supernet"):
        model = load_supernet(folder, num_labels=2, **NAMES)
        assert type(model) is ElasticForSequenceClassification
        assert model.config.label2id == NAMES["label2id"]
    trained = load_supernet(bert("BertForSequenceClassification", **NAMES))
    trained.save_pretrained(tmp_path / "trained")
    assert torch.equal(load_supernet(tmp_path / "trained").classifier.weight, trained.classifier.weight)


@pytest.mark.parametrize(
    ("class_name", "settings", "expected"),
    [
        ("BertModel", NAMES, {}),
        ("BertForTokenClassification", NAMES, {}),
        ("BertForSequenceClassification", NAMES, {"label_names": ["no", "yes"]}),
        ("BertForSequenceClassification", {"num_labels": 3}, {"num_labels": 3}),
        ("BertForSequenceClassification", {"num_labels": 1}, {"problem_type": "regression"}),
    ],
)
def test_a_head_says_which_labels_it_was_made_for(bert, class_name, settings, expected):
    assert expected_labels(bert(class_name, **settings)) == expected


def test_a_model_is_saved_with_the_tokenizer_of_its_source_if_there_is_one(bert, tmp_path, caplog):
    source = bert("BertModel")
    model = convert(source)
    save_with_tokenizer(model, source, tmp_path / "with")
    assert AutoTokenizer.from_pretrained(tmp_path / "with")("quick").input_ids == [2, 5, 3]
    for path in source.glob("*"):
        if "token" in path.name or path.name == "vocab.txt":
            path.unlink()
    save_with_tokenizer(model, source, tmp_path / "without")
    assert (tmp_path / "without" / "model.safetensors").is_file()
    assert not (tmp_path / "without" / "tokenizer.json").exists()
    assert "has no tokenizer" in caplog.text
    with pytest.raises(ValueError, match="has no tokenizer: save the one of the checkpoint it came from"):
        load_tokenizer(source)
