"""Unusable arguments are found before any work: each test also looks that nothing was written."""

import copy
import sys

import numpy
import pytest
from transformers import BertConfig, BertForSequenceClassification, RobertaConfig, RobertaForSequenceClassification

from hf_elastic import SubnetConfig, convert, export_family

from ..conftest import TINY


@pytest.fixture
def refuse(classifier, tokenizer, tmp_path):
    """Exports with one unusable argument, and expects an error and no files."""

    def export(error: type[Exception], message: str, **arguments):
        arguments = {
            "model": classifier,
            "tokenizer": tokenizer,
            "out": tmp_path / "out",
            "sequence_length": 16,
            **arguments,
        }
        with pytest.raises(error, match=message):
            export_family(**arguments)
        assert not list(tmp_path.iterdir())

    return export


def test_model(refuse):
    stock = BertForSequenceClassification(BertConfig(**TINY))
    refuse(TypeError, r"model is a BertForSequenceClassification.*convert\(\) it first", model=stock)


def test_tokenizer(refuse):
    refuse(TypeError, "tokenizer is a NoneType: give the model's", tokenizer=None)


def test_a_tokenizer_with_more_tokens_than_the_model_embeds(refuse, tokenizer):
    larger = copy.deepcopy(tokenizer)
    larger.add_tokens(["<new>"])
    refuse(ValueError, r"has 100 tokens, and the model embeds 99: .*resize_token_embeddings", tokenizer=larger)


@pytest.mark.parametrize(
    ("subnets", "error", "message"),
    [
        (["huge"], ValueError, r"Unknown subnet 'huge': this model has \['base', 'large', 'small', 'tiny'\]"),
        ("tiny", TypeError, r"subnets='tiny': give a sequence of names, e.g. subnets=\['tiny'\]"),
        ([], ValueError, "There is no size to export"),
        ({}, ValueError, "There is no size to export"),
        ({"supernet": SubnetConfig()}, ValueError, "Subnet name 'supernet' cannot be used"),
        ({"../tiny": SubnetConfig()}, ValueError, "Subnet name '../tiny' cannot be used"),
        ({"a/b": SubnetConfig()}, ValueError, "Subnet name 'a/b' cannot be used"),
        ({"x" * 256: SubnetConfig()}, ValueError, "'x+' is 1 bytes too long for the name of a folder"),
        ({"": SubnetConfig()}, ValueError, "Subnet name '' cannot be used"),
        ({"one": SubnetConfig(), "One": SubnetConfig()}, ValueError, "'one' differs from another one in case alone"),
        ({"wide": SubnetConfig(intermediate_size=65)}, ValueError, "Subnet 'wide' does not fit.*larger than"),
        ({"wide": "large"}, TypeError, "Subnet 'wide' is a str: give a SubnetConfig"),
        ({"odd": SubnetConfig(num_attention_heads=4, intermediate_size=8)}, ValueError, "are not nested"),
    ],
)
def test_subnets(subnets, error, message, refuse):
    refuse(error, message, subnets=subnets)


def test_a_supernet_without_sizes(refuse, classifier):
    classifier.config.subnets = {}
    refuse(ValueError, "There is no size to export: name some with model.config.subnets")


@pytest.mark.parametrize(
    ("formats", "error", "message"),
    [
        (["safetensors", "onnx-int3"], ValueError, r"Unknown export format 'onnx-int3': known are \['safetensors'\]"),
        ("safetensors", TypeError, r"formats='safetensors': give a sequence"),
    ],
)
def test_formats(formats, error, message, refuse):
    refuse(error, message, formats=formats)


@pytest.mark.parametrize(
    ("metrics", "error", "message"),
    [
        (
            {"huge": {"accuracy": 0.9}},
            ValueError,
            "metrics has values for 'huge', which is not exported: exported are",
        ),
        ([1], TypeError, r"metrics=\[1\]: give a mapping by size"),
        (0, TypeError, r"metrics=0: give a mapping by size"),
        ({"small": {1: 0.5}}, TypeError, r"metrics\['small'\] has the key 1: expected a metric's name"),
        ({"tiny": 0.9}, TypeError, r"metrics\['tiny'\]=0.9: give a mapping"),
        ({"tiny": {"accuracy": "good"}}, TypeError, r"metrics\['tiny'\]\['accuracy'\]='good' is no number"),
        ({"tiny": {"accuracy": None}}, TypeError, r"metrics\['tiny'\]\['accuracy'\]=None is no number"),
        ({"tiny": {"accuracy": float("nan")}}, ValueError, r"metrics\['tiny'\]\['accuracy'\]=nan is not finite"),
    ],
)
def test_metrics(metrics, error, message, refuse):
    refuse(error, message, metrics=metrics)


@pytest.mark.parametrize("metrics", [None, {"tiny": {"f1": 0.9}}])
def test_primary_metric(metrics, refuse):
    refuse(
        ValueError,
        "primary_metric='accuracy' is not among the metrics given",
        metrics=metrics,
        primary_metric="accuracy",
    )


@pytest.mark.parametrize(
    ("details", "error", "message"),
    [
        ({"licence": "mit"}, ValueError, "Unknown training detail 'licence'"),
        ({1: "mit"}, ValueError, "Unknown training detail 1"),
        ("text", TypeError, "details='text': give TrainingDetails or a mapping"),
        ([1], TypeError, r"details=\[1\]: give TrainingDetails or a mapping"),
    ],
)
def test_details(details, error, message, refuse):
    refuse(error, message, details=details)


@pytest.mark.parametrize("length", [0, 65])
def test_sequence_length(length, refuse):
    refuse(
        ValueError, f"sequence_length={length} must lie between 1 and the model's 64 positions", sequence_length=length
    )


def test_sequence_length_where_padding_takes_positions(tokenizer, tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=66, pad_token_id=1, **sizes)
    model = convert(RobertaForSequenceClassification(config))
    model.config.subnets = {"large": SubnetConfig()}
    with pytest.raises(ValueError, match="sequence_length=65 must lie between 1 and the model's 64 positions"):
        export_family(model, tokenizer, tmp_path / "family", sequence_length=65)


@pytest.mark.parametrize("length", [None, "16", 1.5, True])
def test_sequence_length_of_another_type(length, refuse):
    refuse(TypeError, f"sequence_length={length!r}: expected a whole number", sequence_length=length)


def test_direction(refuse):
    refuse(TypeError, "greater_is_better='yes': expected True, False or None", greater_is_better="yes")


def test_out(refuse):
    refuse(ValueError, "is 9 bytes too long for the name of a folder", out="x" * 256)


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_a_missing_extra(module, refuse, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    refuse(
        ImportError,
        rf"needs `{module}`: pip install \"hf_elastic\[export\]\"",
        metrics={"tiny": {"accuracy": 0.9}},
    )


def test_without_a_picture_matplotlib_is_not_needed(classifier, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert export_family(classifier, tokenizer, tmp_path / "out", subnets=["tiny"], sequence_length=8).names == [
        "tiny"
    ]


@pytest.mark.parametrize(
    ("metric", "given", "expected"),
    [("accuracy", None, True), ("loss", None, False), ("eval_loss", None, False), ("perplexity", False, False)],
)
def test_the_direction_follows_the_name_unless_it_is_given(metric, given, expected, classifier, tokenizer, tmp_path):
    family = export_family(
        classifier,
        tokenizer,
        tmp_path / "out",
        subnets=["tiny"],
        metrics={"tiny": {metric: numpy.float32(1.5)}},
        sequence_length=8,
        greater_is_better=given,
    )
    assert family.manifest.greater_is_better is expected
    assert family.members["tiny"].metrics == {metric: 1.5}
