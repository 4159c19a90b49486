"""Every source and class: what is converted computes the same, and goes back to what it came from."""

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from hf_elastic import ElasticForTokenClassification, SubnetConfig, convert, extract, to_stock
from hf_elastic.compression.sources import SOURCES as REGISTERED
from hf_elastic.compression.sources import UnsupportedSourceError

from ..conftest import TINY, first_output, make_labels, randomize
from .sources import CASES, SOURCES, make_padded_inputs, make_source

ALL_CASES = pytest.mark.parametrize(("name", "elastic_class"), CASES)


def assert_same(first: PreTrainedModel, second: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> None:
    """Compares all outputs, those of tokens without padding, whose windows may show it nothing to attend to."""
    with torch.no_grad():
        expected = first(**inputs, output_hidden_states=True)
        actual = second(**inputs, output_hidden_states=True)
    is_token = inputs["attention_mask"].flatten(0, -2).bool()
    for name in expected:
        ours, theirs = actual[name], expected[name]
        pairs = zip(ours, theirs, strict=True) if name == "hidden_states" else [(ours, theirs)]
        for our, their in pairs:
            of_tokens = their.shape[:2] == is_token.shape
            our, their = (our[is_token], their[is_token]) if of_tokens else (our, their)
            torch.testing.assert_close(our, their, atol=1e-5, rtol=1e-5)


def test_all_sources_are_tested_with_all_elastic_classes():
    assert SOURCES.keys() == REGISTERED.keys()
    for name, case in SOURCES.items():
        for elastic_class, source_class in case.classes.items():
            assert REGISTERED[name].class_for(elastic_class) == source_class


@ALL_CASES
@pytest.mark.parametrize("side", ["right", "left"])
def test_outputs_equal_the_sources(name, elastic_class, side):
    source = make_source(name, elastic_class)
    model = convert(source)
    assert type(model).__name__ == elastic_class
    assert not model.training
    assert_same(source, model, make_padded_inputs(name, elastic_class, side) | make_labels(elastic_class))


@ALL_CASES
def test_positions_that_are_given(name, elastic_class):
    if (name, elastic_class) == ("distilbert", "ElasticForMultipleChoice"):
        pytest.skip("DistilBertForMultipleChoice does not flatten position_ids")
    source = make_source(name, elastic_class)
    inputs = make_padded_inputs(name, elastic_class)
    inputs["position_ids"] = torch.arange(11).flip(0).add(7).expand(inputs["input_ids"].shape)
    assert_same(source, convert(source), inputs)


@ALL_CASES
def test_embeddings_in_place_of_tokens(name, elastic_class):
    source = make_source(name, elastic_class)
    inputs = make_padded_inputs(name, elastic_class)
    inputs["inputs_embeds"] = source.get_input_embeddings()(inputs.pop("input_ids")).detach() + 0.1
    assert_same(source, convert(source), inputs)


@pytest.mark.parametrize("name", SOURCES)
def test_an_untied_decoder(name):
    source = make_source(name, "ElasticForMaskedLM", tie_word_embeddings=False)
    model = convert(source)
    assert model.lm_head.decoder.weight is not model.model.embeddings.word_embeddings.weight
    inputs = make_padded_inputs(name, "ElasticForMaskedLM")
    assert_same(source, model, inputs)
    stock = to_stock(model)
    assert stock.get_output_embeddings().weight is not stock.get_input_embeddings().weight
    assert_same(source, stock, inputs)


YARN = {"rope_type": "yarn", "rope_theta": 160000.0, "factor": 4.0, "original_max_position_embeddings": 16}
SETTINGS = [
    ("roberta", {"pad_token_id": 0}),
    ("xlm-roberta", {"type_vocab_size": 3}),
    ("electra", {"embedding_size": TINY["hidden_size"], "summary_activation": "gelu"}),
    ("distilbert", {"sinusoidal_pos_embds": True}),
    ("modernbert", {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True}),
    ("modernbert", {"decoder_bias": False, "classifier_pooling": "mean", "num_labels": 2}),
    ("modernbert", {"layer_types": ["sliding_attention", "full_attention"] * 2, "local_attention": 3}),
    ("modernbert", {"rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_type": "default"}}}),
    ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}}),
]


@pytest.mark.parametrize(("name", "fields"), SETTINGS)
@pytest.mark.parametrize("elastic_class", SOURCES["bert"].classes)
def test_settings_that_change_the_computation(name, fields, elastic_class):
    source = make_source(name, elastic_class, **fields)
    inputs = make_padded_inputs(name, elastic_class)
    inputs["input_ids"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, source.config.pad_token_id)
    model = convert(source)
    assert_same(source, model, inputs)
    assert_same(source, to_stock(model), inputs)


def test_windows_over_an_input_that_is_longer_than_they_are():
    source = make_source("modernbert", "ElasticForMaskedLM", local_attention=32, max_position_embeddings=600)
    input_ids = torch.randint(5, TINY["vocab_size"], (2, 530))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 301:] = 0
    model = convert(source)
    with torch.no_grad():
        expected = source(input_ids, attention_mask=attention_mask).logits
        actual = model(input_ids, attention_mask=attention_mask).logits
    is_token = attention_mask.bool()
    torch.testing.assert_close(actual[is_token], expected[is_token], atol=1e-5, rtol=1e-5)


@ALL_CASES
def test_weights_and_settings_are_given_back(name, elastic_class, tmp_path):
    source = make_source(name, elastic_class)
    stock = to_stock(convert(source))
    assert type(stock) is type(source)
    weights = stock.state_dict()
    assert weights.keys() == source.state_dict().keys()
    for weight_name, weight in source.state_dict().items():
        assert torch.equal(weights[weight_name], weight), weight_name
    before, after = source.config.to_dict(), stock.config.to_dict()
    not_read = "classifier_dropout" if elastic_class == "ElasticForMultipleChoice" else "summary_activation"
    lost = {field for field in before if before[field] != after[field]}
    assert lost == ({not_read} if name == "electra" else set())

    stock.save_pretrained(tmp_path)
    loaded, report = type(stock).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    inputs = make_padded_inputs(name, elastic_class)
    torch.testing.assert_close(first_output(loaded(**inputs)), first_output(stock(**inputs)))


SMALLER = {
    "shallow and narrow": SubnetConfig(layers=(0, 2, 3), intermediate_size=32),
    "fewer hidden units": SubnetConfig(num_attention_heads=2, hidden_size=16),
}


@ALL_CASES
@pytest.mark.parametrize("subnet", SMALLER.values(), ids=SMALLER)
def test_members_go_back(name, elastic_class, subnet):
    member = extract(convert(make_source(name, elastic_class)), subnet)
    assert_same(member, to_stock(member), make_padded_inputs(name, elastic_class))


@pytest.mark.parametrize("name", SOURCES)
def test_from_a_folder_as_it_was_saved_or_for_a_task(name, tmp_path):
    source = make_source(name, "ElasticForMaskedLM")
    source.save_pretrained(tmp_path)
    inputs = make_padded_inputs(name, "ElasticForMaskedLM")
    assert_same(source, convert(tmp_path), inputs)
    model = convert(tmp_path, task="sequence-classification", num_labels=5)
    assert model.config.num_labels == 5
    assert_same(source.base_model, model.model, inputs)
    assert type(to_stock(model)).__name__ == SOURCES[name].classes["ElasticForSequenceClassification"]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("elastic_class", ["ElasticForSequenceClassification", "ElasticForTokenClassification"])
def test_a_loaded_encoder_gets_a_new_head(name, elastic_class):
    source = make_source(name, "ElasticModel")
    task = {"ElasticForSequenceClassification": "sequence-classification"}.get(elastic_class, "token-classification")
    model = convert(source, task=task, num_labels=7)
    assert type(model).__name__ == elastic_class
    inputs = make_padded_inputs(name, elastic_class)
    assert model(**inputs).logits.shape[-1] == 7
    torch.testing.assert_close(
        model.model(**inputs).last_hidden_state[inputs["attention_mask"].bool()],
        source(**inputs).last_hidden_state[inputs["attention_mask"].bool()],
        atol=1e-5,
        rtol=1e-5,
    )


class TestElectrasDiscriminator:
    """Google's published checkpoints are of this class: it says of every token whether it was replaced."""

    @pytest.fixture
    def discriminator(self) -> PreTrainedModel:
        return randomize(transformers.ElectraForPreTraining(SOURCES["electra"].make_config())).eval()

    def test_it_becomes_a_classifier_of_tokens_and_goes_back(self, discriminator, tmp_path):
        discriminator.save_pretrained(tmp_path)
        inputs = make_padded_inputs("electra", "ElasticForTokenClassification")
        expected = discriminator(**inputs).logits
        for model in (convert(discriminator), convert(tmp_path)):
            assert isinstance(model, ElasticForTokenClassification)
            assert model.config.id2label == {0: "replaced"}
            torch.testing.assert_close(model(**inputs).logits.squeeze(-1), expected, atol=1e-5, rtol=1e-5)
        stock = to_stock(extract(model, SubnetConfig(num_attention_heads=2, hidden_size=16)))
        assert isinstance(stock, transformers.ElectraForPreTraining)
        stock = to_stock(model)
        for name, weight in discriminator.state_dict().items():
            assert torch.equal(stock.state_dict()[name], weight), name

    def test_a_task_gives_it_a_new_head(self, discriminator, tmp_path):
        discriminator.save_pretrained(tmp_path)
        for source in (discriminator, tmp_path):
            model = convert(source, task="token-classification", num_labels=9)
            assert model.config.num_labels == 9
            assert not model.config.token_transform
            assert isinstance(to_stock(model), transformers.ElectraForTokenClassification)


DYNAMIC = {"full_attention": {"rope_type": "dynamic", "factor": 2.0}}


@pytest.mark.parametrize(
    ("name", "elastic_class", "fields", "message"),
    [
        (
            "roberta",
            "ElasticModel",
            {"position_embedding_type": "relative_key"},
            "only position_embedding_type",
        ),
        ("electra", "ElasticForMaskedLM", {"is_decoder": True}, "is_decoder=True cannot"),
        ("camembert", "ElasticForMaskedLM", {"add_cross_attention": True}, "add_cross_attention=True cannot"),
        ("electra", "ElasticForMultipleChoice", {"summary_type": "last"}, "only summary_type='first' can"),
        ("electra", "ElasticForMultipleChoice", {"summary_use_proj": False}, "summary_use_proj=False cannot"),
        ("modernbert", "ElasticModel", {"rope_parameters": DYNAMIC}, "rope_type='dynamic'.*'linear'"),
        (
            "xlm-roberta",
            "ElasticModel",
            {"per_layer_config": {0: {"intermediate_size": 8}}},
            "per_layer_config is set",
        ),
    ],
)
def test_a_field_that_cannot_be_expressed_is_named_before_weights_are_read(
    name, elastic_class, fields, message, tmp_path
):
    config = SOURCES[name].make_config(**fields)
    config.architectures = [SOURCES[name].classes[elastic_class]]
    config.save_pretrained(tmp_path)  # without weights
    with pytest.raises(UnsupportedSourceError, match=message):
        convert(tmp_path)


def test_a_field_of_another_head_does_not_matter():
    assert convert(make_source("electra", "ElasticModel", summary_type="last")) is not None
    with pytest.raises(UnsupportedSourceError, match="summary_type='last'"):
        convert(make_source("electra", "ElasticModel", summary_type="last"), task="multiple-choice")


def test_dropouts_that_become_one_are_named(caplog):
    source = make_source("modernbert", "ElasticModel", attention_dropout=0.1, mlp_dropout=0.2)
    transformers.utils.logging.enable_propagation()
    try:
        config = convert(source).config
        convert(make_source("modernbert", "ElasticModel"))
    finally:
        transformers.utils.logging.disable_propagation()
    (record,) = caplog.records
    assert "'attention_dropout': 0.1, 'embedding_dropout': 0.0, 'mlp_dropout': 0.2" in record.message
    assert (config.attention_probs_dropout_prob, config.hidden_dropout_prob) == (0.1, 0.2)


def test_windows_are_computed_as_blocks_unless_another_implementation_was_chosen():
    source = make_source("modernbert", "ElasticModel")
    model = convert(source)
    assert model.config._attn_implementation == "elastic_sparse"
    assert to_stock(model).config._attn_implementation == "sdpa"
    source.set_attn_implementation("eager")
    model = convert(source)
    assert model.config._attn_implementation == "eager"
    assert to_stock(model).config._attn_implementation == "eager"
    assert_same(source, model, make_padded_inputs("modernbert", "ElasticModel"))


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_full_attention_is_made_sparse_on_request(name):
    source = make_source(name, "ElasticForMaskedLM").to(torch.bfloat16)
    model = convert(source, sparse_attention=True)
    dense_types = convert(source).config.layer_types
    for layer, dense in zip(model.model.layers, dense_types, strict=True):
        if dense == "full_attention":
            assert layer.attention.layer_type == "block_sparse_attention"
            assert layer.attention.sparsity_logit.dtype == torch.bfloat16
            torch.testing.assert_close(layer.attention.sparsity().float(), torch.full((4,), 0.7), atol=1e-2, rtol=0)
        else:
            assert layer.attention.layer_type == dense
    with pytest.raises(ValueError, match="'block_sparse_attention' for layer 0"):
        to_stock(model)


@pytest.mark.parametrize("name", SOURCES)
def test_a_head_for_questions_gives_starts_and_ends(name, tmp_path):
    with pytest.raises(
        ValueError, match="num_labels=3 cannot be converted|num_labels should be 2"
    ):  # DistilBERT's own
        convert(make_source(name, "ElasticForQuestionAnswering", num_labels=3))
    encoder = make_source(name, "ElasticModel", num_labels=3)
    encoder.save_pretrained(tmp_path)
    for model in (convert(encoder, task="question-answering"), convert(tmp_path, task="question-answering")):
        assert model.qa_outputs.weight.shape == (2, model.config.hidden_size)


@pytest.mark.parametrize("name", SOURCES)
def test_layers_may_attend_in_another_way(name, tmp_path):
    source = make_source(name, "ElasticForSequenceClassification")
    source.save_pretrained(tmp_path)
    layer_types = ["sliding_attention", "block_sparse_attention", "linear_attention", "full_attention"]
    for given in (source, tmp_path):
        model = convert(given, layer_types=layer_types, sliding_window=3, attention_sparsity=0.5)
        assert [layer.attention.layer_type for layer in model.model.layers] == layer_types
        assert model.model.layers[0].attention.pattern.window == 3
        assert model.model.layers[1].attention.sparsity().tolist() == pytest.approx([0.5] * 4)
        assert model.config._attn_implementation == "elastic_sparse"
    with pytest.raises(ValueError, match="layer_types has 'local'"):
        convert(source, layer_types=["local"] * 4)
