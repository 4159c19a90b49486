"""What heads leave out is told head by head."""

import pytest
import torch

from hf_elastic import SubnetConfig, extract, rank
from hf_elastic.compression.sparsity import head_budgets, head_sparsities
from hf_elastic.modeling.attention_elastic import SPARSITY_SCALE

from ..conftest import make_inputs, make_labels
from ..test_architectures import make_model


@pytest.fixture
def model():
    model = make_model("sparse", dense_fallback=False, layer_types=["full_attention", "linear_attention"] * 2)
    with torch.no_grad():
        for layer, first in ((0, 0.1), (2, 0.5)):
            sparsities = torch.tensor([first, first + 0.1, first + 0.2, first + 0.3])
            model.model.layers[layer].attention.sparsity_logit.copy_(sparsities.logit() / SPARSITY_SCALE)
    return model


def test_sparsities_of_the_layers_that_have_some(model):
    sparsities = head_sparsities(model)
    assert list(sparsities) == [0, 2]
    assert sparsities[2] == pytest.approx((0.5, 0.6, 0.7, 0.8))
    assert head_sparsities(model, SubnetConfig(layers=(1, 2), num_attention_heads=2)) == {
        2: pytest.approx((0.5, 0.6), abs=1e-6)
    }


def test_budgets_follow_the_length(model):
    assert head_budgets(model, 160) == {0: (9, 8, 7, 6), 2: (5, 4, 3, 2)}
    # Two blocks are a head's own.
    assert head_budgets(model, 96) == {0: (5, 5, 4, 4), 2: (3, 2, 2, 2)}
    assert head_budgets(model, 1) == {0: (1, 1, 1, 1), 2: (1, 1, 1, 1)}
    with pytest.raises(ValueError, match="sequence_length=0"):
        head_budgets(model, 0)


def test_nothing_is_left_out_of_a_short_text():
    model = make_model("sparse", dense_fallback=True)
    for layer in model.model.layers:
        layer.attention.init_sparsity()
    assert set(head_budgets(model, 95).values()) == {(6, 6, 6, 6)}
    assert set(head_budgets(model, 96).values()) == {(2, 2, 2, 2)}


def test_a_head_keeps_its_sparsity_when_it_is_ranked_and_cut(model):
    before = head_sparsities(model)[2]
    batch = make_inputs("ElasticForSequenceClassification") | make_labels("ElasticForSequenceClassification")
    order = rank(model, [batch]).heads[2].argsort(descending=True, stable=True).tolist()
    assert head_sparsities(model)[2] == pytest.approx([before[head] for head in order])
    member = extract(model, SubnetConfig(layers=(2,), num_attention_heads=3))
    assert head_sparsities(member)[0] == pytest.approx([before[head] for head in order[:3]])
