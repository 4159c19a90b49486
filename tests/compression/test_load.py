"""What is said of a checkpoint that is loaded: one sentence of a new head, the library's report of anything else."""

import logging

import pytest
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

from hf_elastic import convert
from tests.conftest import TINY

NEW = "The head of BertForSequenceClassification is new: train it before the model is used."
REPORT = "LOAD REPORT"


@pytest.fixture
def told(caplog, monkeypatch):
    for name in ("transformers", "hf_elastic"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    return caplog


def load(model, folder, **settings):
    model.save_pretrained(folder)
    return convert(folder, task="sequence-classification", **settings)


@pytest.mark.parametrize("model_class", [BertModel, BertForMaskedLM])
def test_a_new_head_is_one_sentence(model_class, told, tmp_path):
    # The pooler of a model that is trained with masked tokens is missing, too: that is more than a new head.
    load(model_class(BertConfig(**TINY)), tmp_path)
    is_whole = model_class is BertModel
    assert (NEW in told.messages) is is_whole
    assert (REPORT in told.text) is not is_whole


def test_a_head_that_is_there_needs_no_word(told, tmp_path):
    load(BertForSequenceClassification(BertConfig(**TINY)), tmp_path)
    assert REPORT not in told.text
    assert NEW not in told.messages


def test_the_report_of_an_error_is_shown(told, tmp_path):
    with pytest.raises(RuntimeError, match="the above report"):
        load(BertForSequenceClassification(BertConfig(**TINY)), tmp_path, num_labels=5)
    assert REPORT in told.text
    assert not logging.getLogger("transformers.modeling_utils").filters
