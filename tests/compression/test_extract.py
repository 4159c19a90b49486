"""An extracted member is the sub-network, and nothing more."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig

from hf_elastic import ElasticForMaskedLM, ElasticForSequenceClassification, ElasticModel, SubnetConfig, extract

from ..conftest import first_output, make_inputs, make_labels, randomize


@pytest.mark.parametrize("subnet", ["large", "base", "small", "tiny", SubnetConfig(layers=(2,)), None])
def test_computes_what_the_subnet_computes(model, subnet):
    inputs = {**make_inputs(type(model).__name__), **make_labels(type(model).__name__)}
    with torch.no_grad():
        expected = model(**inputs, subnet=subnet)
        actual = extract(model, subnet)(**inputs)
    assert actual.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("subnet", ["large", "small", "tiny"])
def test_reloads_without_a_word_and_is_no_larger_than_its_parameters(model, subnet, tmp_path):
    member = extract(model, subnet)
    member.save_pretrained(tmp_path)
    loaded, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert loaded.state_dict().keys() == member.state_dict().keys()
    for name, weight in member.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name
    inputs = make_inputs(type(model).__name__)
    torch.testing.assert_close(first_output(loaded(**inputs)), first_output(member(**inputs)))

    parameters = sum(parameter.numel() for parameter in member.parameters())
    stored = load_file(tmp_path / "model.safetensors")
    assert sum(weight.numel() for weight in stored.values()) == parameters
    header = 200 * (len(stored) + 1)
    assert (tmp_path / "model.safetensors").stat().st_size <= 4 * parameters + header


def test_layers_that_differ_are_written_per_layer(classifier, tmp_path):
    extract(classifier, "small").save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["num_hidden_layers"] == 3
    assert written["num_attention_heads"] == 2
    assert written["head_dim"] == 8
    assert written["per_layer_config"]["0"]["num_attention_heads"] == 3
    widths = [config.intermediate_size for config in AutoConfig.from_pretrained(tmp_path).per_layer_config]
    assert widths == [48, 32, 40]


def test_uniform_layers_have_global_numbers(classifier):
    config = extract(classifier, "tiny").config
    assert not config.is_heterogeneous
    assert (config.num_hidden_layers, config.num_attention_heads, config.intermediate_size) == (2, 2, 32)


def test_a_member_can_be_extracted_from_again(classifier):
    inputs = make_inputs("ElasticForSequenceClassification")
    once = extract(classifier, "small")
    once.config.subnets = {"less": SubnetConfig(layers=(0, 2), num_attention_heads=(2, 1), intermediate_size=32)}
    direct = SubnetConfig(layers=(0, 3), num_attention_heads=(2, 1), intermediate_size=32)
    torch.testing.assert_close(
        extract(once, "less")(**inputs).logits, classifier(**inputs, subnet=direct).logits, atol=1e-6, rtol=1e-6
    )


def test_weights_are_copies(classifier):
    member = extract(classifier, None)
    before = copy.deepcopy(member.state_dict())
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.zero_()
    for name, weight in member.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_settings_are_kept(tiny_config):
    tiny_config.id2label = {0: "no", 1: "yes", 2: "maybe"}
    tiny_config.problem_type = "multi_label_classification"
    tiny_config.custom_note = "kept"
    tiny_config.name_or_path = "somebody/supernet"
    tiny_config.source_name_or_path = "google-bert/bert-base-uncased"
    model = ElasticForSequenceClassification(tiny_config).to(torch.bfloat16).eval()
    model.set_attn_implementation("eager")
    member = extract(model, "tiny")
    assert member.config.id2label == {0: "no", 1: "yes", 2: "maybe"}
    assert member.config.problem_type == "multi_label_classification"
    assert member.config.custom_note == "kept"
    assert member.config.name_or_path == "somebody/supernet"
    assert member.config.source_name_or_path == "google-bert/bert-base-uncased"
    assert member.config.subnets == {}
    assert member.config._attn_implementation == "eager"
    assert member.dtype == torch.bfloat16
    assert not member.training


def test_every_weight_keeps_its_data_type(classifier):
    classifier.to(torch.bfloat16).classifier.float()
    member = extract(classifier, "tiny")
    assert member.classifier.weight.dtype == torch.float32
    assert member.model.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16


def test_an_encoder_without_pooler(tiny_config, tmp_path):
    member = extract(ElasticModel(tiny_config, add_pooling_layer=False), "tiny")
    member.save_pretrained(tmp_path)
    loaded, report = ElasticModel.from_pretrained(tmp_path, output_loading_info=True)
    assert loaded.pooler is None
    assert not any(report.values())


@pytest.mark.parametrize("tied", [True, False])
def test_the_decoder_is_tied_as_before(tied, tiny_config, tmp_path):
    tiny_config.tie_word_embeddings = tied
    member = extract(randomize(ElasticForMaskedLM(tiny_config)), "tiny")
    assert (member.lm_head.decoder.weight is member.model.embeddings.word_embeddings.weight) == tied
    member.save_pretrained(tmp_path)
    assert ("lm_head.decoder.weight" in load_file(tmp_path / "model.safetensors")) != tied


def test_an_unknown_subnet_is_named(classifier):
    with pytest.raises(ValueError, match="'huge'.*'base', 'large', 'small', 'tiny'"):
        extract(classifier, "huge")


def test_a_size_that_does_not_fit_is_named(classifier):
    with pytest.raises(ValueError, match="num_attention_heads=5: 5 in layer 0 is larger than the supernet's 4"):
        extract(classifier, SubnetConfig(num_attention_heads=5))
