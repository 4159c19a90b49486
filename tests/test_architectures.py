"""What must always hold, for every kind of layer and every axis that sizes shrink along."""

import itertools

import pytest
import torch
from transformers import AutoModelForSequenceClassification

import hf_elastic
from hf_elastic import SubnetConfig, extract, rank, split_into_experts
from hf_elastic.compression.cost import count_flops, count_parameters

from .architectures import ARCHITECTURES, SUBNETS, make_config
from .conftest import HEADS, first_output, make_inputs, make_labels, randomize

SIZES = [*SUBNETS, SubnetConfig(layers=(2,), hidden_size=8)]


def make_model(architecture, class_name="ElasticForSequenceClassification", **settings):
    return randomize(getattr(hf_elastic, class_name)(make_config(architecture, **settings))).eval()


def inputs_for(model):
    inputs = make_inputs(type(model).__name__)
    if model.config.type_vocab_size < 2:
        del inputs["token_type_ids"]
    if model.config.pad_token_id:
        padding = model.config.pad_token_id * (1 - inputs["attention_mask"])
        inputs["input_ids"] = inputs["input_ids"] * inputs["attention_mask"] + padding
    return inputs


@pytest.mark.parametrize("size", SIZES, ids=[*SUBNETS, "one-layer"])
@pytest.mark.parametrize("class_name", HEADS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_extracted_member_computes_what_the_subnet_does(architecture, class_name, size):
    model = make_model(architecture, class_name)
    inputs = inputs_for(model)
    with torch.no_grad():
        expected, actual = model(**inputs, subnet=size), extract(model, size)(**inputs)
    torch.testing.assert_close(first_output(actual), first_output(expected), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_member_reloads_and_is_as_large_as_counted(architecture, tmp_path):
    model = make_model(architecture)
    for size in SUBNETS:
        member = extract(model, size)
        member.save_pretrained(tmp_path / size)
        loaded, report = AutoModelForSequenceClassification.from_pretrained(tmp_path / size, output_loading_info=True)
        assert not any(report.values())
        torch.testing.assert_close(loaded(**inputs_for(model)).logits, member(**inputs_for(model)).logits)
        assert sum(weight.numel() for weight in member.parameters()) == count_parameters(model, size).total


@pytest.mark.parametrize("class_name", [name for name in HEADS if name != "ElasticModel"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_ranking_changes_the_order_but_not_the_output(architecture, class_name):
    model = make_model(architecture, class_name)
    inputs = inputs_for(model)
    batch = inputs | make_labels(class_name)
    before = model.base_model.layers[1].attention.q_proj.weight.clone()
    with torch.no_grad():
        expected = first_output(model(**inputs))
        rank(model, [batch])
        actual = first_output(model(**inputs))
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    assert not torch.equal(model.base_model.layers[1].attention.q_proj.weight, before)
    assert model.config.hidden_units_ranked


@pytest.mark.parametrize("size", SIZES, ids=[*SUBNETS, "one-layer"])
@pytest.mark.parametrize("class_name", HEADS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_without_padding_the_output_is_the_same(architecture, class_name, size):
    model = make_model(architecture, class_name)
    inputs = inputs_for(model)
    with torch.no_grad():
        padded = model(**inputs, subnet=size, output_hidden_states=True)
        unpadded = model(**inputs, subnet=size, output_hidden_states=True, unpad_inputs=True)
    mask = inputs["attention_mask"].flatten().bool()
    for expected, actual in zip(padded.hidden_states, unpadded.hidden_states, strict=True):
        expected, actual = expected.flatten(0, 1), actual.flatten(0, 1)
        torch.testing.assert_close(actual[mask], expected[mask], atol=1e-5, rtol=1e-5)
        assert not actual[~mask].any()
    expected, actual = first_output(padded), first_output(unpadded)
    if expected.shape[:2] == inputs["attention_mask"].shape:  # one output for each token
        expected, actual = expected.flatten(0, 1)[mask], actual.flatten(0, 1)[mask]
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("unpad_inputs", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_weight_that_a_size_has_gets_a_gradient_and_no_other(architecture, unpad_inputs, checkpointing):
    model = make_model(architecture, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
    if checkpointing:
        model.activation_checkpointing_enable()
    batch = inputs_for(model) | make_labels("ElasticForSequenceClassification")
    model(**batch, subnet="tiny", unpad_inputs=unpad_inputs).loss.backward()
    kept = dict(extract(model, "tiny").named_parameters())
    for name, weight in model.named_parameters():
        in_layer = ".layers." in name
        if in_layer and name.replace(".layers.3.", ".layers.1.") not in kept:
            continue
        if in_layer and not any(f".layers.{layer}." in name for layer in (0, 3)):
            continue
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_smaller_sizes_cost_less(architecture):
    model = make_model(architecture)
    for count in (count_flops, lambda model, size: count_parameters(model, size).total):
        costs = [count(model, size) for size in SUBNETS]
        assert costs == sorted(costs, reverse=True)
        assert costs[0] > costs[-1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_eager_attention_and_the_default_agree(architecture):
    model = make_model(architecture)
    inputs = inputs_for(model)
    with torch.no_grad():
        expected = model(**inputs).logits
        model.set_attn_implementation("eager")
        outputs = model(**inputs, output_attentions=True)
    torch.testing.assert_close(outputs.logits, expected, atol=1e-5, rtol=1e-5)


def test_padding_that_is_taken_out_is_no_answer():
    model = make_model("bert", "ElasticForQuestionAnswering")
    inputs = inputs_for(model)
    outputs = model(**inputs, unpad_inputs=True)
    padding = ~inputs["attention_mask"].bool()
    for logits in (outputs.start_logits, outputs.end_logits):
        assert (logits[padding] == torch.finfo(logits.dtype).min).all()
        assert logits[~padding].abs().max() < 100


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_tuple_of_outputs_has_the_order_of_berts(mode):
    model = make_model("sparse", "ElasticModel")
    getattr(model, mode)()
    outputs = model(**inputs_for(model), output_hidden_states=True)
    as_tuple = model(**inputs_for(model), output_hidden_states=True, return_dict=False)
    assert list(outputs)[:3] == ["last_hidden_state", "pooler_output", "hidden_states"]
    assert as_tuple[0].shape == (3, 11, 32)
    assert as_tuple[1].shape == (3, 32)
    assert len(as_tuple[2]) == 5


@pytest.mark.parametrize("unpad_inputs", [False, True])
@pytest.mark.parametrize("shape", [(3, 10), (2, 11), (3, 12)])
def test_a_mask_that_does_not_fit_is_refused(shape, unpad_inputs):
    model = make_model("sparse")
    message = rf"attention_mask has the shape \({shape[0]}, {shape[1]}\), the input \(3, 11\)"
    with pytest.raises(ValueError, match=message):
        model(inputs_for(model)["input_ids"], attention_mask=torch.ones(shape), unpad_inputs=unpad_inputs)


def test_padding_cannot_be_taken_out_by_a_mask_of_pairs():
    model = make_model("bert")
    with pytest.raises(ValueError, match=r"needs an attention_mask of shape \(3, 11\), .* not \(3, 1, 11\)"):
        model(inputs_for(model)["input_ids"], attention_mask=torch.ones(3, 1, 11), unpad_inputs=True)


def test_reentrant_checkpointing_is_refused_where_routers_would_not_learn():
    model = make_model("experts").train()
    model.activation_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(ValueError, match="use_reentrant"):
        model(**inputs_for(model), **make_labels("ElasticForSequenceClassification"))


def test_attention_that_is_changed_in_a_finished_model_is_refused():
    model = make_model("bert")
    model.config.sparse_attention = True
    with pytest.raises(ValueError, match="'block_sparse_attention' of layer 0, .*layer_types="):
        model(**inputs_for(model))


@pytest.mark.parametrize("architecture", ["window", "sparse", "linear"])
def test_a_mask_of_pairs_is_refused_where_layers_know_padding_only(architecture):
    model = make_model(architecture)
    with pytest.raises(
        ValueError, match=r"attention_mask has the shape \(3, 1, 11, 11\), but '.*' layers know padding"
    ):
        model(inputs_for(model)["input_ids"], attention_mask=torch.ones(3, 1, 11, 11))


@pytest.mark.parametrize(
    ("architecture", "side"),
    [
        *itertools.product(["window", "sparse", "modernbert"], ["left", "right"]),
        ("linear", "right"),  # under rotary positions it depends on where the text begins
    ],
)
def test_padding_of_any_amount_on_either_side_changes_nothing(architecture, side):
    settings = {"max_position_embeddings": 256, "position_embedding_type": "rotary", "dense_fallback": True}
    model = make_model(architecture, "ElasticModel", **settings, attention_sparsity=0.5)
    for layer in model.layers:
        if layer.attention.layer_type == "block_sparse_attention":
            layer.attention.init_sparsity()
    for length in (5, 60, 130):
        tokens = torch.randint(5, 99, (1, length), generator=torch.Generator().manual_seed(length))
        alone = model(tokens)
        for total in (length + 1, 230):
            padding = (total - length, 0) if side == "left" else (0, total - length)
            batch = torch.nn.functional.pad(tokens, padding).repeat(2, 1)
            mask = torch.nn.functional.pad(torch.ones(1, length), padding).repeat(2, 1)
            mask[1] = 1
            padded = model(batch, attention_mask=mask)
            states = padded.last_hidden_state[0][mask[0].bool()]
            torch.testing.assert_close(states, alone.last_hidden_state[0], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(padded.pooler_output[0], alone.pooler_output[0], atol=1e-5, rtol=1e-5)


def test_what_represents_a_text_is_its_first_token_where_padding_is_taken_out():
    model = make_model("bert", "ElasticModel")
    tokens, position_ids = torch.randint(5, 99, (2, 11)), torch.arange(11)[None]
    mask = torch.ones(2, 11)
    mask[0, :4] = 0
    pooled = model(tokens, attention_mask=mask, unpad_inputs=True).pooler_output
    alone = model(tokens[:1, 4:], position_ids=position_ids[:, 4:]).pooler_output
    torch.testing.assert_close(pooled[:1], alone, atol=1e-6, rtol=1e-5)


def test_attention_weights_of_all_kinds_of_layers():
    layer_types = ["full_attention", "linear_attention", "sliding_attention", "block_sparse_attention"]
    model = make_model("bert", layer_types=layer_types)
    model.set_attn_implementation("eager")
    inputs = inputs_for(model)
    attentions = model(**inputs, output_attentions=True).attentions
    assert len(attentions) == 4
    for weights in attentions:
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 4, 11))
        assert not weights[~inputs["attention_mask"].bool()[:, None, None].expand_as(weights)].any()


def test_padding_before_tokens_is_refused_where_it_must_stay_and_positions_are_counted():
    model = make_model("sparse")
    mask = torch.ones(3, 11)
    mask[0, :4] = 0
    batch = {"input_ids": inputs_for(model)["input_ids"], "attention_mask": mask, "labels": torch.tensor([0, 1, 2])}
    for function in (
        lambda: model(**batch, unpad_inputs=False),
        lambda: model(**batch, output_attentions=True),
        lambda: rank(model, [batch]),
        lambda: split_into_experts(model, 2, 1, [batch]),
    ):
        with pytest.raises(ValueError, match="pad on the right"):
            function()
