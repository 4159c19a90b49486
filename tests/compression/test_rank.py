"""Ranking changes the order of units and nothing else."""

import copy
from dataclasses import replace

import pytest
import torch
from transformers import BertModel

from hf_elastic import ElasticForSequenceClassification, ElasticForTokenClassification, extract, rank, to_stock
from hf_elastic.compression.rank import reorder_units, score_units

from ..conftest import TINY, first_output, make_inputs, make_labels, randomize


def batches(class_name, count=2):
    return [{**make_inputs(class_name, seed), **make_labels(class_name)} for seed in range(count)]


def test_the_full_models_outputs_stay(model):
    class_name = type(model).__name__
    if class_name == "ElasticModel":
        pytest.skip("has no loss")
    inputs = make_inputs(class_name, seed=5)
    with torch.no_grad():
        before, weights = first_output(model(**inputs)), copy.deepcopy(model.state_dict())
        rank(model, batches(class_name))
        after = first_output(model(**inputs))
    torch.testing.assert_close(after, before, atol=1e-5, rtol=1e-5)
    assert any(not torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())


def test_scores_are_the_gradient_of_a_gate_averaged_over_examples(classifier):
    """The reference multiplies every unit by a gate of one, and differentiates one example's loss by it."""
    batch = batches(type(classifier).__name__, 1)[0]
    layers = classifier.model.layers
    expected_heads = torch.zeros(len(layers), TINY["num_attention_heads"])
    expected_neurons = torch.zeros(len(layers), TINY["intermediate_size"])
    for row in range(3):
        head_gates = torch.ones_like(expected_heads, requires_grad=True)
        neuron_gates = torch.ones_like(expected_neurons, requires_grad=True)
        handles = []
        for layer, head_gate, neuron_gate in zip(layers, head_gates, neuron_gates, strict=True):
            gated = ((layer.attention.o_proj, head_gate.repeat_interleave(8)), (layer.mlp.down_proj, neuron_gate))
            for projection, gate in gated:
                handles.append(projection.register_forward_pre_hook(lambda _, x, gate=gate: (x[0] * gate,)))
        classifier(**{name: value[row : row + 1] for name, value in batch.items()}).loss.backward()
        expected_heads += head_gates.grad.abs() / 3
        expected_neurons += neuron_gates.grad.abs() / 3
        for handle in handles:
            handle.remove()
    classifier.zero_grad()

    importance = rank(classifier, [batch])
    assert importance.num_examples == 3
    torch.testing.assert_close(torch.stack(importance.heads), expected_heads)
    torch.testing.assert_close(torch.stack(importance.neurons), expected_neurons)


def test_afterwards_the_scores_descend(classifier):
    data = batches(type(classifier).__name__)
    rank(classifier, data)
    for scores in (importance := rank(classifier, data)).heads + importance.neurons:
        assert (scores.diff() <= 1e-6).all()


def test_scores_alone_leave_the_units_where_they_are(classifier):
    batch = make_inputs("ElasticForSequenceClassification") | make_labels("ElasticForSequenceClassification")
    before = copy.deepcopy(classifier.state_dict())
    scores = score_units(classifier, [batch])
    assert all(torch.equal(weight, before[name]) for name, weight in classifier.state_dict().items())
    ranked = rank(classifier, [batch])
    for one, other in zip((*scores.heads, *scores.neurons), (*ranked.heads, *ranked.neurons), strict=True):
        torch.testing.assert_close(one, other)


def test_units_without_effect_come_last(classifier):
    layer = classifier.model.layers[1]
    with torch.no_grad():
        layer.attention.o_proj.weight[:, :8] = 0
        layer.mlp.down_proj.weight[:, 3] = 0
    rank(classifier, batches(type(classifier).__name__))
    assert layer.attention.o_proj.weight[:, -8:].abs().max() == 0
    assert layer.mlp.down_proj.weight[:, -1].abs().max() == 0


def test_batches_do_not_influence_each_other_and_order_does_not_matter(classifier):
    data = batches(type(classifier).__name__, 3)
    forward, backward = rank(copy.deepcopy(classifier), data), rank(copy.deepcopy(classifier), data[::-1])
    for one, other in zip(forward.neurons, backward.neurons, strict=True):
        torch.testing.assert_close(one, other)


def test_model_state_is_left_alone(classifier):
    classifier.train()
    with classifier.use_subnet("small"):
        rank(classifier, batches(type(classifier).__name__))
        assert classifier.model.active_subnet == classifier.config.subnets["small"]
    assert classifier.training
    assert all(parameter.grad is None for parameter in classifier.parameters())
    for module in classifier.modules():
        assert not module._forward_pre_hooks


def test_dropout_is_off_while_scores_are_taken(classifier):
    data = batches(type(classifier).__name__)
    expected = rank(copy.deepcopy(classifier), data)
    assert classifier.config.hidden_dropout_prob > 0
    torch.testing.assert_close(rank(classifier.train(), data).neurons, expected.neurons)


def test_scores_of_half_precision_models_are_added_up_in_single_precision(classifier):
    data = batches(type(classifier).__name__)
    expected = rank(copy.deepcopy(classifier), data)
    importance = rank(classifier.to(torch.bfloat16), data)
    assert {scores.dtype for scores in importance.heads + importance.neurons} == {torch.float32}
    for scores, reference in zip(importance.neurons, expected.neurons, strict=True):
        assert torch.corrcoef(torch.stack([scores, reference]))[0, 1] > 0.95


def test_within_inference_mode(classifier):
    data = batches(type(classifier).__name__)
    expected = rank(copy.deepcopy(classifier), data)
    with torch.inference_mode():
        torch.testing.assert_close(rank(classifier, data).heads, expected.heads)


@pytest.mark.parametrize("action", [lambda model: rank(model, []), lambda model: extract(model, None), to_stock])
def test_models_that_cannot_be_cut_are_named(action, classifier, tiny_bert_config):
    peft = pytest.importorskip("peft")
    with pytest.raises(TypeError, match="model is a BertModel, not an elastic model: convert it first"):
        action(BertModel(tiny_bert_config))
    adapted = peft.get_peft_model(classifier, peft.LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(TypeError, match="model is a PeftModel, not an elastic model: merge its adapters first"):
        action(adapted)
    with pytest.raises(TypeError, match=r"layers.0.attention.q_proj is a peft.tuners.lora.layer.Linear: .*merge_and"):
        action(adapted.base_model.model)


def test_frozen_parameters_are_ranked_too(classifier):
    reference = rank(copy.deepcopy(classifier), batches(type(classifier).__name__))
    classifier.requires_grad_(False)
    importance = rank(classifier, batches(type(classifier).__name__))
    torch.testing.assert_close(importance.heads, reference.heads)


@pytest.mark.parametrize(
    ("problem_type", "labels"),
    [
        ("regression", torch.tensor([[0.1, 2.0, -1.0]] * 3)),
        ("multi_label_classification", torch.tensor([[1.0, 0.0, 1.0]] * 3)),
    ],
)
def test_other_problem_types(problem_type, labels, tiny_config):
    tiny_config.problem_type = problem_type
    model = randomize(ElasticForSequenceClassification(tiny_config)).eval()
    inputs = make_inputs("ElasticForSequenceClassification")
    before = model(**inputs).logits
    importance = rank(model, [{**inputs, "labels": labels}])
    torch.testing.assert_close(model(**inputs).logits, before, atol=1e-5, rtol=1e-5)
    assert all(scores.max() > 0 for scores in importance.heads + importance.neurons)


def test_streams(classifier):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(batches("ElasticForSequenceClassification"))

    assert rank(classifier, torch.utils.data.DataLoader(Stream(), batch_size=None)).num_examples == 6


def test_max_batches(classifier):
    assert rank(classifier, batches(type(classifier).__name__, 3), max_batches=2).num_examples == 6


def test_bad_data_is_named(classifier):
    weights = copy.deepcopy(classifier.state_dict())
    with pytest.raises(ValueError, match="no batch"):
        rank(classifier, [])
    inputs = make_inputs("ElasticForSequenceClassification")
    with pytest.raises(ValueError, match="max_batches=0"):
        rank(classifier, [inputs], max_batches=0)
    with pytest.raises(ValueError, match="gives no loss for a batch of .*input_ids"):
        rank(classifier, [inputs])
    with pytest.raises(ValueError, match=r"idx=\['a'\]: each value must be a tensor"):
        rank(classifier, [{**inputs, "idx": ["a"]}])
    with pytest.raises(ValueError, match="gives a loss of nan: check that it has labels other than -100"):
        rank(classifier, [{**inputs, "labels": torch.full((3,), -100)}])
    for name, weight in classifier.state_dict().items():
        assert torch.equal(weight, weights[name]), name


def test_another_model_of_the_structure_is_reordered_alike(classifier):
    other = copy.deepcopy(classifier)
    importance = rank(classifier, batches(type(classifier).__name__))
    reorder_units(other, importance)
    expected = classifier.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in other.state_dict().items())


def test_scores_of_another_head_are_refused(classifier):
    importance = rank(classifier, batches(type(classifier).__name__), hidden=True)
    assert importance.features is not None
    other = ElasticForTokenClassification(classifier.config)
    with pytest.raises(ValueError, match="A ElasticForTokenClassification does not have the head"):
        reorder_units(other, importance)
    with pytest.raises(ValueError, match="The scores have 3 features units"):
        reorder_units(classifier, replace(importance, features=importance.features[:3]))


def test_scores_of_another_structure_are_refused(classifier, tiny_config):
    importance = rank(classifier, batches(type(classifier).__name__))
    tiny_config.subnets = {}
    tiny_config.intermediate_size = 2 * TINY["intermediate_size"]
    other = ElasticForSequenceClassification(tiny_config)
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"with 4 layers of \(heads, neurons\) 4, 64, and this one has .* 4, 128"):
        reorder_units(other, importance)
    assert all(torch.equal(weight, before[name]) for name, weight in other.state_dict().items())
