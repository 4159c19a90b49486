"""The proxy against losses written out, for every kind of head."""

import pytest
import torch
from torch.nn.functional import kl_div, log_softmax

import hf_elastic
from hf_elastic import DistillationProxy
from tests.training.cases import CASES, NAMES, collate, make_model, make_rows


def batches_of(case, seed=0):
    return [collate(make_rows(case, 6, seed)), collate(make_rows(case, 3, seed + 1))]


def scores(model, proxy):
    found = {}
    for name in NAMES:
        with model.use_subnet(name):
            found[name] = proxy(model)
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_full_model_has_no_loss_and_smaller_ones_have_one(case):
    model = make_model(case).eval()
    found = scores(model, DistillationProxy(model, batches_of(case)))
    assert found["large"] == pytest.approx(0, abs=1e-6)
    assert found["tiny"] > found["large"]


def test_the_loss_is_the_mean_divergence_of_all_rows():
    model = make_model("classification").eval()
    batches = batches_of("classification")
    with torch.no_grad():
        pairs = [(model(**b, subnet="small").logits, model(**b).logits) for b in batches]
    student, teacher = (log_softmax(torch.cat(side), dim=-1) for side in zip(*pairs, strict=True))
    expected = kl_div(student, teacher, reduction="batchmean", log_target=True)
    assert scores(model, DistillationProxy(model, batches))["small"] == pytest.approx(expected.item(), rel=1e-5)


def test_tokens_without_a_label_do_not_count():
    model = make_model("token_classification").eval()
    batches = batches_of("token_classification")
    with torch.no_grad():
        pairs = [
            (model(**b, subnet="small").logits[b["labels"] != -100], model(**b).logits[b["labels"] != -100])
            for b in batches
        ]
    student, teacher = (log_softmax(torch.cat(side), dim=-1) for side in zip(*pairs, strict=True))
    expected = kl_div(student, teacher, reduction="batchmean", log_target=True)
    assert scores(model, DistillationProxy(model, batches))["small"] == pytest.approx(expected.item(), rel=1e-5)


def test_what_the_full_model_says_is_that_of_the_full_model_whatever_is_active():
    model = make_model("classification").train()
    proxy = DistillationProxy(model, batches_of("classification"))
    with model.use_subnet("tiny"):
        model.eval()
        first = proxy(model)
    assert scores(model, proxy)["tiny"] == first
    assert scores(model, proxy)["large"] == pytest.approx(0, abs=1e-6)


def test_other_rows_have_another_fingerprint():
    model = make_model("classification")
    one, same, other = (DistillationProxy(model, batches_of("classification", seed)) for seed in (0, 0, 5))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    fewer = DistillationProxy(model, batches_of("classification"), max_batches=1)
    assert fewer.fingerprint != one.fingerprint and len(fewer.batches) == 1


def test_bad_input_is_named():
    model = make_model("classification")
    with pytest.raises(ValueError, match="gives no batch"):
        DistillationProxy(model, [])
    with pytest.raises(ValueError, match="max_batches=0"):
        DistillationProxy(model, batches_of("classification"), max_batches=0)
    with pytest.raises(TypeError, match="has no head"):
        DistillationProxy(hf_elastic.ElasticModel(model.config), batches_of("classification"))
    with pytest.raises(TypeError, match="not an elastic model"):
        DistillationProxy(torch.nn.Linear(2, 2), batches_of("classification"))
