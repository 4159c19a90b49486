"""What is recorded against the layers' own projections, and that a recording leaves no trace."""

import copy

import pytest
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface

import hf_elastic
from hf_elastic.training.attention_states import attention_map, record_attention_states
from hf_elastic.training.feature_objectives import relation_divergence
from tests.architectures import make_config
from tests.conftest import TINY, make_inputs, randomize

INPUTS = make_inputs("ElasticModel")
MASK = INPUTS["attention_mask"]
# Stock models, and where their layers project to queries, keys and values.
PROJECTIONS = {
    "Bert": ("query", "key", "value"),
    "Roberta": ("query", "key", "value"),
    "Electra": ("query", "key", "value"),
    "DistilBert": ("q_lin", "k_lin", "v_lin"),
    "ModernBert": ("Wqkv",),
    "EuroBert": ("q_proj", "k_proj", "v_proj"),
    "Elastic": ("q_proj", "k_proj", "v_proj"),
}
MODERN = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SETTINGS = {
    "ModernBert": {**MODERN, "cls_token_id": 1, "sep_token_id": 2, "local_attention": 4},
    "EuroBert": {**MODERN, "mask_token_id": 3, "num_key_value_heads": 2},
    "Roberta": {"pad_token_id": 0},
}
HEAD_DIM = 8


def make_stock(name: str, implementation: str = "sdpa") -> transformers.PreTrainedModel:
    config = getattr(transformers, f"{name}Config")(**TINY, **SETTINGS.get(name, {}))
    if name == "DistilBert":
        config.hidden_dim = TINY["intermediate_size"]
    model = getattr(transformers, f"{name}Model")._from_config(config, attn_implementation=implementation)
    return randomize(model).eval()


def make_elastic(architecture: str, implementation: str | None = None, **settings) -> hf_elastic.ElasticModel:
    model = hf_elastic.ElasticModel(make_config(architecture, **settings))
    if implementation is not None:
        model.set_attn_implementation(implementation)
    return randomize(model).eval()


def inputs_of(model) -> dict[str, torch.Tensor]:
    """What the model reads, with padding on the right."""
    names = ["input_ids", "attention_mask"]
    if getattr(model.config, "type_vocab_size", 0) > 1:
        names.append("token_type_ids")
    return {name: INPUTS[name] for name in names}


def projected(model, **keywords) -> list[list[torch.Tensor]]:
    """The outputs of the projections of a pass, `[batch, heads, length, head_dim]`, by layer."""
    kinds = PROJECTIONS[type(model).__name__.removesuffix("Model")]
    found = []

    def note(module, args, output):
        if "Wqkv" in kinds:
            found.extend(output.unflatten(-1, (3, -1, HEAD_DIM)).permute(2, 0, 3, 1, 4))
        else:
            found.append(output.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2))

    modules = [module for name, module in model.named_modules() if name.rpartition(".")[2] in kinds]
    handles = [module.register_forward_hook(note) for module in modules]
    model(**inputs_of(model), **keywords)
    for handle in handles:
        handle.remove()
    return [found[i : i + 3] for i in range(0, len(found), 3)]


def turned(states: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary positions as a multiplication of complex numbers, whose parts are the halves of a head."""
    half = states.shape[-1] // 2
    speeds = theta ** (-torch.arange(half) / half)
    angles = torch.arange(states.shape[2])[:, None] * speeds
    numbers = torch.complex(states[..., :half], states[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([numbers.real, numbers.imag], dim=-1)


def assert_recorded(states, expected) -> None:
    """Compares tokens only: what padding sees, if its window has no token, depends on the implementation."""
    tokens = MASK.bool()
    assert list(states) == list(range(1, len(expected) + 1))
    for layer, wanted in zip(states.values(), expected, strict=True):
        for actual, tensor in zip(layer[:3], wanted, strict=True):
            assert actual.shape == tensor.shape
            torch.testing.assert_close(actual.transpose(1, 2)[tokens], tensor.transpose(1, 2)[tokens])
        assert layer.scaling == pytest.approx(HEAD_DIM**-0.5)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["Bert", "Roberta", "Electra", "DistilBert"])
def test_stock_models(name, implementation):
    model = make_stock(name, implementation)
    expected = projected(model)
    plain = model(**inputs_of(model)).last_hidden_state
    with record_attention_states(model) as states:
        outputs = model(**inputs_of(model)).last_hidden_state
    assert len(states) == 4
    assert_recorded(states, expected)
    torch.testing.assert_close(outputs[MASK.bool()], plain[MASK.bool()])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["ModernBert", "EuroBert"])
def test_stock_models_with_rotary_positions(name, implementation):
    model = make_stock(name, implementation)
    rope = model.config.rope_parameters
    thetas = [
        (rope if name == "EuroBert" else rope[model.config.layer_types[layer]])["rope_theta"] for layer in range(4)
    ]
    expected = [
        [turned(query, theta), turned(key, theta), value]
        for (query, key, value), theta in zip(projected(model), thetas, strict=True)
    ]
    plain = model(**inputs_of(model)).last_hidden_state
    with record_attention_states(model) as states:
        outputs = model(**inputs_of(model)).last_hidden_state
    assert_recorded(states, expected)
    torch.testing.assert_close(outputs[MASK.bool()], plain[MASK.bool()])


@pytest.mark.parametrize("subnet", [None, "small", "tiny"])
@pytest.mark.parametrize(
    ("architecture", "implementation"),
    [
        ("bert", "sdpa"),
        ("bert", "eager"),
        ("bert", "elastic_sparse"),
        ("shared", "sdpa"),
        ("window", "sdpa"),
        ("window", "eager"),
        ("window", "elastic_sparse"),
        ("experts", "sdpa"),
    ],
)
def test_elastic_models(architecture, implementation, subnet):
    model = make_elastic(architecture, implementation)
    expected = projected(model, subnet=subnet)
    plain = model(**inputs_of(model), subnet=subnet).last_hidden_state
    with record_attention_states(model) as states:
        outputs = model(**inputs_of(model), subnet=subnet).last_hidden_state
    assert_recorded(states, expected)
    assert len(states) == {None: 4, "small": 3, "tiny": 2}[subnet]
    torch.testing.assert_close(outputs[MASK.bool()], plain[MASK.bool()])
    assert model.config._attn_implementation == implementation


def test_elastic_models_with_rotary_positions():
    model = make_elastic("modernbert")
    thetas = [160000.0, 10000.0] * 2
    expected = [[turned(q, t), turned(k, t), v] for (q, k, v), t in zip(projected(model), thetas, strict=True)]
    with record_attention_states(model) as states:
        model(**inputs_of(model))
    assert_recorded(states, expected)


def test_windows_that_are_computed_as_blocks_stay_so():
    """Inputs long enough for the blocks of a window, where a mask of the wrong kind would show."""
    model = make_elastic("window", "elastic_sparse", dense_fallback=False)
    ids = torch.randint(5, 99, (2, 64), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(64) < torch.tensor([[64], [37]])).long()
    plain = model(ids, mask).last_hidden_state
    with record_attention_states(model):
        outputs = model(ids, mask).last_hidden_state
    torch.testing.assert_close(outputs[mask.bool()], plain[mask.bool()])


def test_heads_differ_by_layer():
    model = make_elastic("bert")
    subnet = hf_elastic.SubnetConfig(layers=(0, 1, 3), num_attention_heads=(3, 1, 2))
    with record_attention_states(model, layers={2, 3}) as states:
        model(**inputs_of(model), subnet=subnet)
    assert {layer: tuple(kept.key.shape) for layer, kept in states.items()} == {2: (3, 1, 11, 8), 3: (3, 2, 11, 8)}


def test_the_map_is_what_eager_attention_gives():
    for name in ("Bert", "EuroBert"):
        model = make_stock(name, "eager")
        expected = model(**inputs_of(model), output_attentions=True).attentions
        with record_attention_states(model) as states:
            model(**inputs_of(model))
        for layer, weights in zip(states.values(), expected, strict=True):
            actual = attention_map(layer.query, layer.key, MASK, layer.scaling)
            assert (actual.transpose(2, 3)[~MASK[:, None].expand(3, 4, 11).bool()] == 0).all()
            rows = MASK[:, None].expand(3, 4, 11).bool()
            torch.testing.assert_close(actual[rows], weights[rows])


def test_the_map_ignores_what_padding_holds_and_is_computed_in_float32():
    query, key = torch.randn(2, 3, 4, 11, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = attention_map(query.float(), key.float(), MASK)
    padding = ~MASK.bool()[:, None, :, None]
    query, key = query.masked_fill(padding, float("nan")), key.masked_fill(padding, float("nan"))
    query.requires_grad_(), key.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = attention_map(query, key, MASK)
    assert actual.dtype == torch.float32
    rows = MASK[:, None].expand(3, 4, 11).bool()
    torch.testing.assert_close(actual[rows], expected[rows])
    actual[rows].square().sum().backward()
    assert torch.isfinite(query.grad).all() and torch.isfinite(key.grad).all()


def relation_gradients(model, backward_within: bool = False) -> tuple[dict[str, torch.Tensor], int]:
    """Gradients of a loss on the states of two layers, and how many layers were recorded in all."""
    model.zero_grad()
    target = torch.randn(3, 2, 11, 16, generator=torch.Generator().manual_seed(0))

    def loss(states):
        parts = [relation_divergence(states[n].value, target, MASK, relation_heads=4) for n in (2, 4)]
        return sum(parts) + relation_divergence(states[4].query, target, MASK, relation_heads=2)

    with record_attention_states(model) as states:
        model(**inputs_of(model))
        if backward_within:
            loss(states).backward()
    if not backward_within:
        loss(states).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return gradients, len(states)


@pytest.mark.parametrize("backward_within", [True, False])
@pytest.mark.parametrize("kind", ["Bert", "ModernBert", "bert", "window"])
def test_activation_checkpointing_changes_nothing(kind, backward_within):
    make = make_stock if kind[0].isupper() else make_elastic
    model = make(kind)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0
    model.train()
    expected, layers = relation_gradients(model)
    assert layers == 4 and len(expected) > 20
    model.activation_checkpointing_enable({"use_reentrant": False})
    actual, layers = relation_gradients(model, backward_within)
    assert layers == 4
    assert actual.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name])


def test_reentrant_checkpointing_is_refused():
    model = make_elastic("bert").train()
    model.activation_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(ValueError, match="use_reentrant"), record_attention_states(model):
        model(**inputs_of(model))
    model.eval()
    with record_attention_states(model) as states:
        model(**inputs_of(model))
    assert len(states) == 4


def test_eager_attention_with_checkpointing_is_refused():
    model = make_elastic("bert", "eager").train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    with pytest.raises(ValueError, match="eager.*set_attn_implementation"), record_attention_states(model):
        pass
    with torch.no_grad(), record_attention_states(model) as states:
        model(**inputs_of(model))
    assert len(states) == 4


def test_an_exception_restores_the_implementation():
    model = make_stock("Bert", "eager")
    with pytest.raises(RuntimeError, match="mine"), record_attention_states(model) as states:
        model(**inputs_of(model))
        raise RuntimeError("mine")
    assert model.config._attn_implementation == "eager"
    kept = len(states)
    assert model(**inputs_of(model), output_attentions=True).attentions[0] is not None
    assert len(states) == kept == 4


def test_models_that_share_a_configuration_are_kept_apart():
    model = make_stock("Bert")
    other = transformers.BertModel(model.config).eval()
    expected = projected(model)
    with record_attention_states(model) as states:
        other(**inputs_of(model))
        model(**inputs_of(model))
        other(**inputs_of(model))
    assert_recorded(states, expected)
    assert model.config is other.config and model.config._attn_implementation == "sdpa"


def test_two_models_are_recorded_at_once():
    model = make_stock("Bert", "eager")
    other = transformers.BertModel(model.config).eval()
    elastic = make_elastic("bert", "elastic_sparse")
    expected = [projected(each) for each in (model, other, elastic)]
    with record_attention_states(model) as first, record_attention_states(other) as second:
        with record_attention_states(elastic) as third:
            for each in (model, other, elastic):
                each(**inputs_of(each))
        assert elastic.config._attn_implementation == "elastic_sparse"
    for states, wanted in zip((first, second, third), expected, strict=True):
        assert_recorded(states, wanted)
    assert model.config._attn_implementation == "eager"


def test_configurations_within_a_configuration_are_left_alone():
    tower = {**TINY, "num_hidden_layers": 2}
    config = transformers.CLIPConfig(text_config=tower, vision_config={**tower, "image_size": 8, "patch_size": 4})
    model = transformers.CLIPModel(config).eval()
    model.config.text_config = copy.deepcopy(model.config.text_config)  # one that no module reads
    model.config.text_config._attn_implementation = "eager"
    model.config.vision_config._attn_implementation = "eager"
    with record_attention_states(model) as states:
        assert model.config.text_config._attn_implementation == "eager"
        model.vision_model(torch.randn(1, 3, 8, 8))
    assert len(states) == 2
    implementations = [model.config, model.config.text_config, model.config.vision_config]
    assert [each._attn_implementation for each in implementations] == ["sdpa", "eager", "eager"]


def test_own_implementations_are_kept_and_see_the_padding():
    calls = []

    def attend(module, query, key, value, attention_mask, **kwargs):
        calls.append(attention_mask.dtype)
        return AttentionInterface()["sdpa"](module, query, key, value, attention_mask, **kwargs)

    AttentionInterface.register("tests_own", attend)
    AttentionMaskInterface.register("tests_own", AttentionMaskInterface()["sdpa"])
    model = make_stock("Bert", "tests_own")
    plain = model(**inputs_of(model)).last_hidden_state
    with record_attention_states(model):
        outputs = model(**inputs_of(model)).last_hidden_state
    assert calls == [torch.bool] * 8
    assert torch.equal(outputs, plain)


def test_only_the_layers_asked_for_are_kept():
    model = make_stock("DistilBert")
    with record_attention_states(model, layers=[2, 4]) as states:
        model(**inputs_of(model))
    for layer, wanted in zip((2, 4), (projected(model)[1], projected(model)[3]), strict=True):
        assert all(torch.equal(actual, tensor) for actual, tensor in zip(states[layer][:3], wanted, strict=True))
    assert list(states) == [2, 4]


def test_a_layer_that_does_not_run_is_named():
    model = make_elastic("bert")
    with pytest.raises(ValueError, match="Layer 3 .* layers 1 to 2 ran"), record_attention_states(model, [1, 3, 4]):
        model(**inputs_of(model), subnet="tiny")
    assert model.config._attn_implementation == "sdpa"


def test_batches_without_padding_need_it_back():
    model = make_elastic("bert", unpad_inputs=True)
    with pytest.raises(ValueError, match="unpad_inputs=False"), record_attention_states(model):
        model(**inputs_of(model))
    with record_attention_states(model) as states:
        model(**inputs_of(model), unpad_inputs=False)
    assert states[1].query.shape == (3, 4, 11, 8)


@pytest.mark.parametrize("architecture", ["linear", "sparse"])
def test_other_kinds_of_attention_are_named(architecture):
    model = make_elastic(architecture)
    kind = next(kind for kind in model.config.layer_types if kind != "full_attention")
    with pytest.raises(ValueError, match=kind), record_attention_states(model):
        pass
    assert not model.config._attn_implementation.startswith("recorded")


def test_the_configuration_is_saved_as_it_was(tmp_path):
    model = make_stock("Bert")
    before = copy.deepcopy(model.config).to_dict()
    with record_attention_states(model):
        model(**inputs_of(model))
        assert model.config.to_dict() == before
    assert model.config.to_dict() == before


def test_compiled_models():
    model = make_elastic("bert")
    expected = projected(model, subnet="small")
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        with record_attention_states(compiled) as states:
            compiled(**inputs_of(model), subnet="small")
        assert_recorded(states, expected)
    torch.compiler.reset()
