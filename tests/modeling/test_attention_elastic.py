"""Sparse layers in a model: chosen, computed as blocks, learned, and dense where that is faster."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from hf_elastic import ElasticConfig, ElasticForSequenceClassification, ElasticModel
from hf_elastic.modeling.attention_elastic import SPARSE_IMPLEMENTATION

from ..conftest import TINY, make_inputs, make_labels, randomize

LENGTH = 230
SPARSE = {**TINY, "max_position_embeddings": 256, "attention_block_size": 16, "attention_probs_dropout_prob": 0.0}
SLIDING = {**SPARSE, "layer_types": ["sliding_attention"] * 4, "sliding_window": 5}
BLOCKS = {**SPARSE, "sparse_attention": True, "num_global_tokens": 1, "dense_fallback": False}


def long_inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(5, TINY["vocab_size"], (2, LENGTH), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 150:] = 0
    return {"input_ids": input_ids, "attention_mask": attention_mask}


def hidden_states(model: ElasticModel, **inputs) -> torch.Tensor:
    with torch.no_grad():
        return model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]


@pytest.mark.parametrize("implementation", ["sdpa", "eager", "flex_attention"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"num_global_tokens": 2}, {"num_random_blocks": 2}, {"num_global_tokens": 1, "num_random_blocks": 1}],
)
def test_windows_as_blocks_and_as_masks_are_the_same(settings, implementation):
    model = randomize(ElasticModel(ElasticConfig(**SLIDING, **settings))).eval()
    inputs = long_inputs()
    assert model.config._attn_implementation == SPARSE_IMPLEMENTATION
    assert not model.layers[0].attention.runs_dense(LENGTH)
    as_blocks = hidden_states(model, **inputs)
    model.set_attn_implementation(implementation)
    torch.testing.assert_close(hidden_states(model, **inputs), as_blocks, atol=1e-5, rtol=1e-5)


def test_what_lies_outside_of_all_windows_is_not_seen():
    model = randomize(ElasticModel(ElasticConfig(**SLIDING))).eval()
    inputs = long_inputs()
    changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
    changed["input_ids"][0, 200:] = 7
    with torch.no_grad():
        before, after = (model(**batch).last_hidden_state[0] for batch in (inputs, changed))
    reach = 4 * SLIDING["sliding_window"]  # layer by layer
    torch.testing.assert_close(after[: 200 - reach], before[: 200 - reach])
    assert not torch.allclose(after[200 - reach : 200], before[200 - reach : 200])


def test_dynamic_blocks_equal_the_masked_computation_of_the_same_blocks():
    model = randomize(ElasticModel(ElasticConfig(**BLOCKS))).eval()
    for layer in model.layers:
        layer.attention.init_sparsity()
    inputs = long_inputs()
    sparse = hidden_states(model, **inputs)
    model.set_attn_implementation("eager")
    torch.testing.assert_close(hidden_states(model, **inputs), sparse, atol=1e-5, rtol=1e-5)
    attentions = model(**inputs, output_attentions=True).attentions
    kept = (attentions[0][0] > 0).float().mean()
    assert kept < 0.6


def test_short_inputs_are_computed_densely_for_that_call_only():
    settings = {**BLOCKS, "dense_fallback": True, "max_position_embeddings": 4096, "attention_block_size": 64}
    model = randomize(ElasticModel(ElasticConfig(**settings))).eval()
    dense = randomize(ElasticModel(ElasticConfig(**{**settings, "sparse_attention": False}))).eval()
    dense.load_state_dict(model.state_dict(), strict=False)
    short = make_inputs("ElasticModel")
    long = torch.randint(5, 99, (1, 4096), generator=torch.Generator().manual_seed(0))
    attention = model.layers[0].attention
    assert attention.runs_dense(11) and not attention.runs_dense(4096)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(model(**short).last_hidden_state, dense(**short).last_hidden_state)
            assert not torch.allclose(model(long).last_hidden_state, dense(long).last_hidden_state)


def test_a_dense_checkpoint_is_loaded_with_sparse_attention(tmp_path):
    model = randomize(ElasticForSequenceClassification(ElasticConfig(**SPARSE, num_labels=3))).eval()
    model.save_pretrained(tmp_path)
    sparse, report = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, sparse_attention=True, output_loading_info=True
    )
    assert sparse.config.layer_types == ["block_sparse_attention"] * 4
    assert sparse.config._attn_implementation == SPARSE_IMPLEMENTATION
    assert report["missing_keys"] == {f"model.layers.{i}.attention.sparsity_logit" for i in range(4)}
    for layer in sparse.model.layers:
        torch.testing.assert_close(layer.attention.sparsity(), torch.full((4,), 0.7))
    assert torch.equal(sparse.model.layers[2].mlp.up_proj.weight, model.model.layers[2].mlp.up_proj.weight)
    sparse.save_pretrained(tmp_path / "sparse")
    _, report = AutoModelForSequenceClassification.from_pretrained(tmp_path / "sparse", output_loading_info=True)
    assert not any(report.values())


def test_sparsities_learn_from_the_task_and_from_the_penalty():
    model = randomize(ElasticForSequenceClassification(ElasticConfig(**BLOCKS, num_labels=3))).train()
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.attention.sparsity_logit)  # a sparsity of 0.5, less than the target
    batch = long_inputs() | {"labels": torch.tensor([0, 2])}
    model(**batch).loss.backward()
    for layer in model.model.layers:
        assert layer.attention.sparsity_logit.grad.abs().min() > 0
    auxiliary = model.model(**long_inputs()).auxiliary_loss
    torch.testing.assert_close(auxiliary.item(), 0.2**2, atol=1e-6, rtol=0)
    before = torch.cat([layer.attention.sparsity() for layer in model.model.layers]).mean()
    optimizer = torch.optim.Adam([layer.attention.sparsity_logit for layer in model.model.layers], lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        model.model(**long_inputs()).auxiliary_loss.backward()
        optimizer.step()
    assert torch.cat([layer.attention.sparsity() for layer in model.model.layers]).mean() > before + 0.05


def test_the_penalty_is_part_of_training_losses_alone_and_is_shared_by_accumulated_batches():
    model = randomize(ElasticForSequenceClassification(ElasticConfig(**BLOCKS, num_labels=3)))
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.attention.sparsity_logit)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    inputs = make_inputs("ElasticForSequenceClassification") | make_labels("ElasticForSequenceClassification")
    assert model.eval().model(inputs["input_ids"]).auxiliary_loss is None
    whole = model.train()(**inputs).loss
    parts = [
        model(**{name: value[i : i + 1] for name, value in inputs.items()}, num_items_in_batch=3) for i in range(3)
    ]
    torch.testing.assert_close(sum(part.loss for part in parts), whole)


@pytest.mark.parametrize("name", ["num_global_tokens", "num_random_blocks"])
def test_flash_attention_is_refused_for_patterns_that_it_does_not_know(name):
    config = ElasticConfig(**SLIDING, **{name: 1})
    with pytest.raises(ValueError, match=f"flash_attention_2' knows windows only, but {name}=1: use 'elastic_sparse'"):
        ElasticModel._from_config(config, attn_implementation="flash_attention_2")


def test_linear_layers_ignore_padding():
    config = ElasticConfig(**SPARSE, layer_types=["linear_attention"] * 4)
    model = randomize(ElasticModel(config)).eval()
    assert model.config._attn_implementation == "sdpa"
    inputs = long_inputs()
    changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
    changed["input_ids"][1, 150:] = 7
    assert torch.equal(hidden_states(model, **changed), hidden_states(model, **inputs))
