"""The selection against its definition in loops, and every way to compute it against dense attention."""

import math
from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hf_elastic.modeling.block_sparse_attention_elastic import (
    BlockPattern,
    block_bias,
    block_sparse_attention,
    flex_block_attention,
    select_blocks,
    sparsity_logit,
    sparsity_penalty,
)

SCALING = 0.4
HEADS, HEAD_DIM = 4, 8
SPARSITIES = [0.0, 0.35, 0.7, 0.99]
# Whole and odd lengths, shorter than a block, and many blocks.
LENGTHS = [1, 3, 8, 50, 129]
PATTERN = BlockPattern(block_size=4)


def make_states(length: int, batch_size: int = 3, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Query, key and value as projections give them: transposed in memory."""
    generator = torch.Generator().manual_seed(length)
    states = torch.randn(3, batch_size, length, HEADS, HEAD_DIM, generator=generator).to(dtype)
    return [state.transpose(1, 2).requires_grad_() for state in states]


def make_sparsity() -> torch.Tensor:
    return torch.tensor(SPARSITIES, requires_grad=True)


def make_mask(length: int, side: str | None) -> torch.Tensor | None:
    """Rows of different lengths, one of them full."""
    if side is None:
        return None
    lengths = torch.tensor([[length], [length // 3 + 1], [length // 2 + 1]])
    positions = torch.arange(length)
    return positions < lengths if side == "right" else positions >= length - lengths


def dense_attention(query, key, value, padding_mask, sparsity, pattern=PATTERN, training=False):
    bias = block_bias(query, key, padding_mask, sparsity, pattern, SCALING, training)
    return (query @ key.mT * SCALING + bias).softmax(dim=-1) @ value


def bias_in_loops(query, key, mask, sparsity, pattern, training):
    """The module's description, literally, for one row and head: query, key `(length, head_dim)`, mask `(length,)`."""
    length = len(query)
    positions = list(range(length))
    block_size, span = pattern.block_size, pattern.span * pattern.block_size
    key_blocks = [positions[start : start + block_size] for start in range(0, length, block_size)]
    filled = [index for index, block in enumerate(key_blocks) if mask[block].any()]
    bias = torch.full((length, length), torch.finfo(query.dtype).min)
    for start in range(0, length, span):
        queries = positions[start : start + span]

        def mean(states, block):
            tokens = [position for position in block if mask[position]]
            return states[tokens].mean(dim=0) if tokens else torch.zeros(HEAD_DIM)

        def is_first(index, queries=queries):
            return bool(set(key_blocks[index]) & set(queries)) or index * block_size < pattern.num_global_tokens

        def importance(index, queries=queries):
            similarity = (mean(query, queries) @ mean(key, key_blocks[index])).item()
            return (0, index) if is_first(index) else (1, -similarity)

        order = sorted(filled, key=importance)
        num_first = max(1, sum(is_first(index) for index in filled))
        budget = len(filled) if mask.sum() < pattern.dense_below else (1 - sparsity) * len(filled)
        for rank, index in enumerate(order):
            gate = min(max(budget - rank, 0.0), 1.0)
            if rank < num_first:
                gate = 1.0
            elif not training:
                gate = float(gate >= 0.5)
            if gate == 0:
                continue
            for position in key_blocks[index]:
                if mask[position]:
                    bias[queries, position] = math.log(gate)
    return bias


PATTERNS = [
    PATTERN,
    BlockPattern(block_size=4, num_global_tokens=1, span=4),
    BlockPattern(block_size=4, num_global_tokens=6, dense_fallback=True),
]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("length", LENGTHS)
def test_bias_is_the_definition(length, side, pattern, training):
    query, key, _ = make_states(length)
    mask = make_mask(length, side)
    bias = block_bias(query, key, mask, torch.tensor(SPARSITIES), pattern, SCALING, training)
    rows = torch.ones(3, length, dtype=torch.bool) if mask is None else mask
    for row in range(3):
        for head, sparsity in enumerate(SPARSITIES):
            expected = bias_in_loops(
                query[row, head].detach(), key[row, head].detach(), rows[row], sparsity, pattern, training
            )
            actual = bias[row, head]
            torch.testing.assert_close(actual[rows[row]], expected[rows[row]], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("length", LENGTHS)
def test_attention_and_gradients_are_those_of_the_bias(length, side, pattern, training):
    states, sparsity, mask = make_states(length), make_sparsity(), make_mask(length, side)
    output = block_sparse_attention(*states, mask, sparsity, pattern, SCALING, training=training)
    expected = dense_attention(*states, mask, sparsity, pattern, training)
    tokens = torch.ones(3, length, dtype=torch.bool) if mask is None else mask
    is_token = tokens[:, None, :, None]
    torch.testing.assert_close(output * is_token, expected * is_token, atol=1e-5, rtol=1e-5)

    inputs = [*states, sparsity] if training else states
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)) * is_token
    gradients = torch.autograd.grad(output, inputs, direction)
    expected_gradients = torch.autograd.grad(expected, inputs, direction)
    torch.testing.assert_close(gradients[:3], expected_gradients[:3], atol=1e-5, rtol=1e-5)
    # A head's only number sums what all its query blocks say, each times the number of blocks.
    torch.testing.assert_close(gradients[3:], expected_gradients[3:], atol=1e-5 * length, rtol=1e-5)
    assert output.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("side", [None, "left"])
def test_without_sparsity_it_is_full_attention(side, training):
    states, mask = make_states(50), make_mask(50, side)
    output = block_sparse_attention(*states, mask, torch.zeros(HEADS), PATTERN, SCALING, training=training)
    bias = None if mask is None else torch.zeros(3, 1, 1, 50).masked_fill(~mask[:, None, None], -torch.inf)
    expected = torch.nn.functional.scaled_dot_product_attention(*states, bias, scale=SCALING)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


def test_evaluation_keeps_what_training_opens_by_half():
    query, key, _ = make_states(100)
    for sparsity in torch.linspace(0.01, 0.99, 12):
        arguments = (query, key, None, sparsity.expand(HEADS))
        soft = block_bias(*arguments, PATTERN, SCALING, training=True)
        hard = block_bias(*arguments, PATTERN, SCALING)
        assert torch.equal(soft >= math.log(0.5), hard == 0)


def test_budget_counts_the_blocks_with_tokens():
    query, key, _ = make_states(80)
    mask = torch.arange(80) < torch.tensor([[80], [40], [21]])
    order, kept, _ = select_blocks(query, key, mask, torch.full((HEADS,), 0.5), PATTERN, SCALING, False)
    assert (kept[:, :, 0] == torch.tensor([[10], [5], [3]])).all()  # half of 20, 10 and 6
    for row, num_filled in enumerate((20, 10, 6)):
        assert (order[row, ..., :num_filled] < num_filled).all()


def test_gradient_opens_heads_that_need_more_blocks_and_closes_the_others():
    query, key, value = (state.detach() for state in make_states(64, batch_size=1))
    query[:], key[..., 0] = torch.eye(HEAD_DIM)[0], torch.linspace(0.1, -0.1, 64)  # ranks blocks by their position,
    value[:] = torch.arange(64.0)[:, None]  # and the first query block finds more the further it looks
    logit = torch.full((HEADS,), 0.1, requires_grad=True)
    optimizer = torch.optim.Adam([logit], lr=0.05)
    for _ in range(30):
        output = block_sparse_attention(query, key, value, None, logit.sigmoid(), PATTERN, SCALING, training=True)
        found = output[0, :, :8].mean(dim=(1, 2))
        loss = found[2:].sum() - found[:2].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    sparsity = logit.sigmoid()
    assert (sparsity[:2] < 0.4).all() and (sparsity[2:] > 0.6).all()


@pytest.mark.parametrize("training", [False, True])
def test_rows_of_padding_only_stay_finite(training):
    states, sparsity = make_states(30), make_sparsity()
    mask = torch.ones(3, 30, dtype=torch.bool)
    mask[1] = False
    output = block_sparse_attention(*states, mask, sparsity, PATTERN, SCALING, training=training)
    output.square().sum().backward()
    assert all(tensor.isfinite().all() for tensor in (output, *(state.grad for state in states)))
    assert not training or sparsity.grad.isfinite().all()


def test_half_precision_stays_near_single_precision():
    states, sparsity = make_states(100, dtype=torch.bfloat16), make_sparsity()
    output = block_sparse_attention(*states, None, sparsity, PATTERN, SCALING, training=True)
    exact = block_sparse_attention(
        *(state.float() for state in states), None, sparsity, PATTERN, SCALING, training=True
    )
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), exact, atol=2e-2, rtol=2e-2)
    assert block_bias(*states[:2], None, sparsity, PATTERN, SCALING).isfinite().all()


def test_autocast_changes_neither_the_selection_nor_the_products():
    states, sparsity = make_states(100), make_sparsity()
    attend = partial(block_sparse_attention, pattern=PATTERN, scaling=SCALING, training=True)
    expected = attend(*states, None, sparsity)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(attend(*states, None, sparsity), expected)
        # What rotary positions leave in float32 meets values in bfloat16.
        mixed = attend(*states[:2], states[2].bfloat16(), None, sparsity)
        mixed.float().sum().backward()
    assert mixed.dtype == torch.bfloat16
    torch.testing.assert_close(mixed.float(), expected, atol=2e-2, rtol=2e-2)


def test_dropout_is_drawn_in_training_only_and_keeps_the_mean():
    states, sparsity = make_states(30), make_sparsity()
    attend = partial(block_sparse_attention, *states, None, sparsity, PATTERN, SCALING)
    assert torch.equal(attend(dropout=0.5), attend())
    torch.manual_seed(0)
    draws = [attend(dropout=0.5, training=True).detach() for _ in range(400)]
    assert not torch.equal(draws[0], draws[1])
    torch.testing.assert_close(torch.stack(draws).mean(dim=0), attend(training=True), atol=0.25, rtol=0)
    torch.manual_seed(0)
    assert torch.equal(attend(dropout=0.5, training=True), draws[0])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing_gives_the_same_gradients(dropout, use_reentrant):
    gradients = []
    for run in (lambda function, *inputs: function(*inputs), partial(checkpoint, use_reentrant=use_reentrant)):
        states, sparsity = make_states(50), make_sparsity()
        options = {"pattern": PATTERN, "scaling": SCALING, "dropout": dropout, "training": True}
        torch.manual_seed(0)
        run(
            partial(block_sparse_attention, **options), *states, make_mask(50, "right"), sparsity
        ).square().sum().backward()
        gradients.append([tensor.grad for tensor in (*states, sparsity)])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("training, backend, lengths", [(False, "eager", (50, 23)), (True, "aot_eager", (50,))])
def test_compiles_to_one_graph(training, backend, lengths):
    torch._dynamo.reset()
    attend = partial(block_sparse_attention, pattern=PATTERN, scaling=SCALING, training=training)
    compiled = torch.compile(attend, backend=backend, fullgraph=True, dynamic=len(lengths) > 1)
    for length in lengths:
        states, sparsity, mask = make_states(length), make_sparsity(), make_mask(length, "right")
        inputs = [*states, sparsity] if training else states
        outputs = [function(*states, mask, sparsity) for function in (compiled, attend)]
        gradients = [torch.autograd.grad(output.square().sum(), inputs) for output in outputs]
        torch.testing.assert_close(outputs[0], outputs[1])
        torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize(("length", "span"), [(50, 2), (131, 4)])
def test_flex_attention_computes_the_same_selection(length, span, side):
    states, mask, sparsity = (
        [state.detach() for state in make_states(length)],
        make_mask(length, side),
        make_sparsity(),
    )
    pattern = BlockPattern(block_size=4, num_global_tokens=1, span=span)
    order, kept, _ = select_blocks(*states[:2], mask, sparsity, pattern, SCALING, False)
    output = flex_block_attention(*states, mask, order, kept, pattern, SCALING)
    expected = dense_attention(*states, mask, sparsity, pattern)
    tokens = torch.ones(3, length, dtype=torch.bool) if mask is None else mask
    is_token = tokens[:, None, :, None]
    torch.testing.assert_close(output * is_token, expected * is_token, atol=1e-5, rtol=1e-5)
    assert output.isfinite().all()


@pytest.mark.parametrize("span", [2, 4])
@pytest.mark.parametrize("dense_fallback", [False, True])
@pytest.mark.parametrize("length", [5, 23, 24, 50])
def test_the_output_of_a_text_does_not_depend_on_what_it_is_padded_to(length, dense_fallback, span):
    pattern = BlockPattern(block_size=4, num_global_tokens=3, span=span, dense_fallback=dense_fallback)
    states, sparsity = make_states(130), torch.full((HEADS,), 0.7)
    mask = torch.arange(130) < torch.tensor([[130], [length], [length]])
    padded = block_sparse_attention(*states, mask, sparsity, pattern, SCALING)[1:, :, :length]
    alone = [state[1:, :, :length] for state in states]
    torch.testing.assert_close(block_sparse_attention(*alone, None, sparsity, pattern, SCALING), padded)
    if length < pattern.dense_below:
        full = torch.nn.functional.scaled_dot_product_attention(*alone, scale=SCALING)
        torch.testing.assert_close(padded, full)


def test_short_inputs_are_those_that_dense_attention_is_as_fast_for():
    assert BlockPattern(dense_fallback=True).dense_below == 384
    assert BlockPattern(block_size=16, num_global_tokens=17, dense_fallback=True).dense_below == 128
    assert BlockPattern().dense_below == 0


@pytest.mark.parametrize("value", [0, 0.0, 0.3, 0.99])
def test_sparsity_round_trip(value):
    assert torch.tensor(sparsity_logit(value)).sigmoid().item() == pytest.approx(value)


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, math.nan])
def test_impossible_sparsity_is_named(value):
    with pytest.raises(ValueError, match=rf"sparsity={value}.*\[0, 1\)"):
        sparsity_logit(value)


@pytest.mark.parametrize(
    ("field", "value"), [("block_size", 0), ("block_size", 2.5), ("num_global_tokens", -1), ("span", 0)]
)
def test_impossible_sizes_are_named(field, value):
    with pytest.raises(ValueError, match=f"{field}={value} is not possible"):
        BlockPattern(**{field: value})


def test_penalty_is_the_mean_squared_distance():
    sparsities = torch.tensor([0.5, 0.9], requires_grad=True)
    penalty = sparsity_penalty(sparsities, 0.7)
    assert penalty.item() == pytest.approx(0.04)
    penalty.backward()
    assert sparsities.grad[0] < 0 < sparsities.grad[1]
