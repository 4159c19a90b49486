"""The models behave as a well-behaved transformers model does, in every size."""

import copy
import json

import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

import hf_elastic
from hf_elastic import (
    ElasticConfig,
    ElasticForMaskedLM,
    ElasticForMultipleChoice,
    ElasticForSequenceClassification,
    ElasticModel,
    SubnetConfig,
    extract,
)
from hf_elastic.modeling.slicing_elastic import ElasticLinear

from ..conftest import TINY, first_output, make_inputs, make_labels, randomize

SUBNETS = ["large", "base", "small", "tiny"]


@pytest.mark.parametrize("subnet", SUBNETS)
def test_padding_does_not_change_the_outputs(model, subnet):
    inputs = make_inputs(type(model).__name__)
    with torch.no_grad():
        padded = model(**inputs, subnet=subnet)
        alone = model(**{name: value[2:, ..., :5] for name, value in inputs.items()}, subnet=subnet)
    if "MultipleChoice" in type(model).__name__:
        inputs = {name: value[2:] for name, value in inputs.items()}
        longer = {name: nn.functional.pad(value, (0, 7)) for name, value in inputs.items()}
        padded, alone = model(**longer, subnet=subnet), model(**inputs, subnet=subnet)
        torch.testing.assert_close(padded.logits, alone.logits, atol=1e-6, rtol=1e-5)
        return
    for name, value in alone.items():
        compared = padded[name][2:]
        if compared.shape != value.shape:  # one output per token
            compared = compared[:, :5]
        torch.testing.assert_close(compared, value, atol=1e-6, rtol=1e-5)


def test_a_smaller_size_has_smaller_products(classifier):
    seen = []
    for layer in classifier.model.layers:
        layer.mlp.down_proj.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape[-1]))
    classifier(**make_inputs("ElasticForSequenceClassification"), subnet="small")
    assert seen == [48, 32, 40]


def test_gradients_touch_the_subnets_block_only(classifier):
    inputs = {**make_inputs("ElasticForSequenceClassification"), **make_labels("ElasticForSequenceClassification")}
    classifier(**inputs, subnet="tiny").loss.backward()
    gradient = classifier.model.layers[0].mlp.up_proj.weight.grad
    assert gradient[:32].abs().min() > 0
    assert gradient[32:].abs().max() == 0
    assert classifier.model.layers[1].mlp.up_proj.weight.grad is None


def test_the_whole_weight_takes_the_call_of_nn_linear(monkeypatch, classifier):
    calls = []
    original = nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: calls.append(self) or original(self, x))
    classifier(**make_inputs("ElasticForSequenceClassification"), subnet="large")
    elastic = [module for module in classifier.modules() if isinstance(module, ElasticLinear)]
    assert set(elastic) <= set(calls)


def test_use_subnet_is_what_calls_without_one_run(classifier):
    inputs = make_inputs("ElasticForSequenceClassification")
    full, tiny = classifier(**inputs).logits, classifier(**inputs, subnet="tiny").logits
    with classifier.use_subnet("tiny"):
        assert torch.equal(classifier(**inputs).logits, tiny)
        with classifier.use_subnet(None):
            assert torch.equal(classifier(**inputs).logits, full)
        assert torch.equal(classifier(**inputs, subnet="large").logits, full)
        assert torch.equal(classifier(**inputs).logits, tiny)
    assert torch.equal(classifier(**inputs).logits, full)


def test_use_subnet_is_undone_by_an_exception(classifier):
    with pytest.raises(RuntimeError, match="on purpose"), classifier.use_subnet("tiny"):
        raise RuntimeError("on purpose")
    assert classifier.model.active_subnet == SubnetConfig()


def test_a_description_and_its_name_are_the_same(classifier):
    inputs = make_inputs("ElasticForSequenceClassification")
    by_name = classifier(**inputs, subnet="small").logits
    assert torch.equal(classifier(**inputs, subnet=classifier.config.subnets["small"]).logits, by_name)


@pytest.mark.parametrize("subnet", ["huge", SubnetConfig(num_attention_heads=5), SubnetConfig(layers=(7,))])
def test_a_wrong_subnet_is_an_error(classifier, subnet):
    with pytest.raises(ValueError, match="'huge'|=5|layer 7"):
        classifier(**make_inputs("ElasticForSequenceClassification"), subnet=subnet)
    with pytest.raises(ValueError, match="'huge'|=5|layer 7"), classifier.use_subnet(subnet):
        pass
    assert classifier.model.active_subnet == SubnetConfig()


@pytest.mark.parametrize("subnet", [None, *SUBNETS])
@pytest.mark.parametrize("implementation", ["sdpa", "flex_attention"])
def test_attention_implementations_agree(classifier, implementation, subnet):
    inputs = make_inputs("ElasticForSequenceClassification")
    with torch.no_grad():
        classifier.set_attn_implementation("eager")
        expected = classifier(**inputs, subnet=subnet).logits
        classifier.set_attn_implementation(implementation)
        actual = classifier(**inputs, subnet=subnet).logits
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("subnet", "layers"), [(None, 4), ("small", 3), ("tiny", 2)])
def test_hidden_states_and_attentions(model, subnet, layers):
    model.set_attn_implementation("eager")
    inputs = make_inputs(type(model).__name__)
    outputs = model(**inputs, subnet=subnet, output_hidden_states=True, output_attentions=True)
    assert len(outputs.hidden_states) == layers + 1
    assert len(outputs.attentions) == layers
    batch = inputs["input_ids"].numel() // 11
    heads = [size.num_attention_heads for size in model.resolve_subnet(subnet).layer_sizes(model.config)]
    assert [tuple(attention.shape) for attention in outputs.attentions] == [(batch, h, 11, 11) for h in heads]
    if isinstance(model, ElasticModel):
        assert torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)
    as_tuple = model(**inputs, return_dict=False)
    assert isinstance(as_tuple, tuple)
    model.config.return_dict = False
    assert torch.equal(model(**inputs)[0], as_tuple[0])


@pytest.mark.parametrize("subnet", [None, "small"])
def test_activation_checkpointing_gives_the_same_gradients(model, subnet):
    class_name = type(model).__name__
    if class_name == "ElasticModel":
        pytest.skip("has no loss")
    inputs = {**make_inputs(class_name), **make_labels(class_name)}
    model.train()
    torch.manual_seed(0)  # dropout is on
    model(**inputs, subnet=subnet).loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    model.activation_checkpointing_enable()
    torch.manual_seed(0)
    model(**inputs, subnet=subnet).loss.backward()
    assert expected
    for name, gradient in expected.items():
        torch.testing.assert_close(model.get_parameter(name).grad, gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("problem_type", "labels"),
    [
        ("single_label_classification", torch.tensor([0, 2, 1])),
        ("multi_label_classification", torch.tensor([[1.0, 0, 1], [0, 0, 1], [1, 1, 1]])),
        ("regression", torch.tensor([[0.5, -1, 2], [0.1, 0.2, 0.3], [4, 5, 6]])),
    ],
)
def test_losses_are_torchs_and_add_up_over_parts(problem_type, labels, tiny_config):
    tiny_config.problem_type = problem_type
    model = randomize(ElasticForSequenceClassification(tiny_config)).eval()
    inputs = make_inputs("ElasticForSequenceClassification")
    outputs = model(**inputs, labels=labels)
    reference = {
        "single_label_classification": nn.CrossEntropyLoss(),
        "multi_label_classification": nn.BCEWithLogitsLoss(),
        "regression": nn.MSELoss(),
    }[problem_type]
    torch.testing.assert_close(outputs.loss, reference(outputs.logits, labels))
    parts = sum(
        model(
            **{name: value[row : row + 1] for name, value in inputs.items()},
            labels=labels[row : row + 1],
            num_items_in_batch=labels.numel(),
        ).loss
        for row in range(3)
    )
    torch.testing.assert_close(parts, outputs.loss)


@pytest.mark.parametrize(
    ("num_labels", "labels", "expected"),
    [
        (1, torch.tensor([0.5, 1, 2]), "regression"),
        (1, torch.tensor([0, 1, 2]), "regression"),
        (3, torch.tensor([0, 1, 2]), "single_label_classification"),
        (3, torch.ones(3, 3), "multi_label_classification"),
    ],
)
def test_the_problem_type_is_inferred_and_kept(num_labels, labels, expected, tiny_config, tmp_path):
    tiny_config.num_labels = num_labels
    model = ElasticForSequenceClassification(tiny_config)
    assert torch.isfinite(model(**make_inputs("ElasticForSequenceClassification"), labels=labels).loss)
    assert model.config.problem_type == expected


def test_labels_of_the_wrong_shape_are_named(tiny_config):
    tiny_config.problem_type = "multi_label_classification"
    model = ElasticForSequenceClassification(tiny_config)
    with pytest.raises(ValueError, match=r"labels of shape \(3, 2\) do not fit logits of shape \(3, 3\)"):
        model(**make_inputs("ElasticForSequenceClassification"), labels=torch.ones(3, 2))


def test_inputs_that_do_not_fit_are_named(classifier):
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        classifier()
    with pytest.raises(ValueError, match=r"Multiple choice needs .* not \(2, 3\)"):
        ElasticForMultipleChoice(classifier.config)(torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="65 tokens, the model 64 positions"):
        classifier(torch.ones(1, 65, dtype=torch.long))


def test_embeddings_in_place_of_tokens(classifier):
    inputs = make_inputs("ElasticForSequenceClassification")
    expected = classifier(**inputs).logits
    embeds = classifier.get_input_embeddings()(inputs.pop("input_ids"))
    assert torch.equal(classifier(**inputs, inputs_embeds=embeds).logits, expected)


def test_save_load_and_save_again_keep_everything(model, tmp_path):
    model.save_pretrained(tmp_path / "once")
    loaded, report = type(model).from_pretrained(tmp_path / "once", output_loading_info=True)
    assert not any(report.values())
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name
    assert loaded.config.subnets == model.config.subnets
    loaded.save_pretrained(tmp_path / "twice")
    for file in (tmp_path / "once").iterdir():
        assert file.read_bytes() == (tmp_path / "twice" / file.name).read_bytes(), file.name


def test_a_head_is_dropped_and_added_by_the_auto_classes(tiny_config, tmp_path):
    masked = randomize(ElasticForMaskedLM(tiny_config))
    masked.save_pretrained(tmp_path)
    classifier, report = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == {
        "classifier.weight",
        "classifier.bias",
        "model.pooler.dense.weight",
        "model.pooler.dense.bias",
    }
    for name, weight in masked.model.state_dict().items():
        assert torch.equal(classifier.model.state_dict()[name], weight), name
    assert torch.equal(classifier.classifier.bias, torch.zeros(3))


def test_loading_the_encoder_of_a_model_without_pooler_makes_none_up(tiny_config, tmp_path):
    tiny_config.add_pooling_layer = False
    ElasticForMaskedLM(tiny_config).save_pretrained(tmp_path)
    encoder, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert encoder.pooler is None
    assert not report["missing_keys"]


def test_a_tied_decoder_is_stored_once_and_tied_after_loading(tiny_config, tmp_path):
    model = ElasticForMaskedLM(tiny_config)
    model.save_pretrained(tmp_path)
    loaded = ElasticForMaskedLM.from_pretrained(tmp_path)
    assert loaded.lm_head.decoder.weight is loaded.model.embeddings.word_embeddings.weight
    parameters = sum(p.numel() for p in model.parameters())
    assert (tmp_path / "model.safetensors").stat().st_size < 4 * parameters + 200 * 100


@pytest.mark.parametrize("tied", [True, False])
def test_resize_token_embeddings(tied, tiny_config):
    tiny_config.tie_word_embeddings = tied
    model = randomize(ElasticForMaskedLM(tiny_config)).eval()
    inputs = make_inputs("ElasticForMaskedLM")
    before = model(**inputs).logits
    model.resize_token_embeddings(120, mean_resizing=False)
    after = model(**inputs, labels=torch.full((3, 11), 119))
    assert after.logits.shape[-1] == 120
    assert model.config.vocab_size == 120
    torch.testing.assert_close(after.logits[..., : TINY["vocab_size"]], before)
    assert torch.isfinite(after.loss)
    assert (model.lm_head.decoder.weight is model.get_input_embeddings().weight) == tied


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(model, dtype):
    inputs = make_inputs(type(model).__name__)
    expected = first_output(model(**inputs, subnet="small"))
    half = copy.deepcopy(model)
    half = half.half() if dtype == torch.float16 else half.to(dtype)
    actual = first_output(half(**inputs, subnet="small"))
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.float(), expected, atol=0.3, rtol=0.1)


def test_half_precision_keeps_through_saving(classifier, tmp_path):
    classifier.to(torch.bfloat16).save_pretrained(tmp_path)
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype="auto").dtype == torch.bfloat16
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.fixture
def tokenizer(minilm):
    return AutoTokenizer.from_pretrained(minilm)


def real_vocabulary(tiny_config, class_name):
    config = type(tiny_config)(**{**tiny_config.to_dict(), "vocab_size": 30522})
    return randomize(getattr(hf_elastic, class_name)(config)).eval()


def test_text_classification_pipeline(tokenizer, tiny_config):
    model = real_vocabulary(tiny_config, "ElasticForSequenceClassification")
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    texts = ["a short text", "a rather longer text than the first one"]
    with model.use_subnet("tiny"):
        results = classify(texts, batch_size=2)
    member = pipeline("text-classification", model=extract(model, "tiny"), tokenizer=tokenizer, top_k=None)
    for result, expected in zip(results, member(texts), strict=True):
        assert {r["label"] for r in result} == {"LABEL_0", "LABEL_1", "LABEL_2"}
        assert [r["label"] for r in result] == [r["label"] for r in expected]
        assert [r["score"] for r in result] == pytest.approx([r["score"] for r in expected], abs=1e-5)


def test_fill_mask_pipeline(tokenizer, tiny_config):
    model = real_vocabulary(tiny_config, "ElasticForMaskedLM")
    fill = pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=3)
    with model.use_subnet("small"):
        result = fill("the capital of France is [MASK].")
    assert len(result) == 3
    assert sum(r["score"] for r in result) <= 1


def test_peft_wraps_the_projections(classifier):
    peft = pytest.importorskip("peft")
    inputs = {**make_inputs("ElasticForSequenceClassification"), **make_labels("ElasticForSequenceClassification")}
    expected = classifier(**inputs).logits
    adapted = peft.get_peft_model(
        classifier, peft.LoraConfig(task_type="SEQ_CLS", target_modules=["q_proj", "v_proj", "up_proj"], r=2)
    )
    torch.testing.assert_close(adapted.eval()(**inputs).logits, expected)
    adapted(**inputs).loss.backward()
    assert any(p.grad is not None for name, p in adapted.named_parameters() if "lora" in name)
    with pytest.raises(RuntimeError, match="must match"):
        adapted(**inputs, subnet="tiny")  # rather than ignoring the adapter


@pytest.mark.parametrize("field", ["hidden_act", "classifier_activation", "lm_head_activation"])
def test_an_unknown_activation_is_named(field):
    with pytest.raises(ValueError, match=f"{field}='nonsense' is unknown: possible are .*'gelu'"):
        ElasticForSequenceClassification(ElasticConfig(**TINY, **{field: "nonsense"}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layer_types": ["sliding"] * 4}, "layer_types has 'sliding': possible are"),
        ({"layer_types": ["full_attention"] * 5}, "layer_types has 5 entries, but num_hidden_layers=4"),
        ({"layer_groups": [0, 0, 1]}, "layer_groups has 3 entries"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok=9 is more than num_experts=1"),
        ({"sliding_window": -3}, "sliding_window=-3"),
        ({"attention_block_size": 0}, "attention_block_size=0"),
        ({"attention_sparsity": 1.5}, "attention_sparsity=1.5"),
    ],
)
def test_fields_given_at_loading_are_checked(fields, message, classifier, tmp_path):
    classifier.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        AutoModelForSequenceClassification.from_pretrained(tmp_path, **fields)


def test_random_blocks_may_be_given_at_loading(classifier, tmp_path):
    classifier.save_pretrained(tmp_path)
    windows = {"layer_types": ["sliding_attention"] * 4, "num_random_blocks": 1}
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path, **windows)
    assert [layer.attention.pattern.seed for layer in model.model.layers] == [0, 1, 2, 3]
