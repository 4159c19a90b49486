"""The operator against dense attention that masks what is not listed, and what operators must hold."""

import importlib.util

import pytest
import torch

from hf_elastic.modeling import attend_blocks_elastic
from hf_elastic.modeling.attend_blocks_elastic import attend_blocks

SCALING = 0.3
BATCH, HEADS, HEAD_DIM = 2, 3, 8


def make_states(length: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Query, key and value as projections give them: transposed in memory."""
    generator = torch.Generator().manual_seed(length)
    states = torch.randn(3, BATCH, length, HEADS, HEAD_DIM, generator=generator, dtype=torch.float64).to(dtype)
    return [state.transpose(1, 2).requires_grad_() for state in states]


def make_lists(length: int, query_size: int, key_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A random order of the key blocks, how many of them are kept, and the logarithm of the last one's gate."""
    generator = torch.Generator().manual_seed(length)
    query_blocks, key_blocks = -(-length // query_size), -(-length // key_size)
    shape = (BATCH, HEADS, query_blocks)
    order = torch.rand(*shape, key_blocks, generator=generator).argsort(dim=-1)
    kept = torch.randint(1, key_blocks + 1, shape, generator=generator)
    return order, kept, torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def dense_attention(query, key, value, key_mask, order, kept, last_log_gate, key_weight, query_size, key_size):
    """What `attend_blocks` computes, with all scores at once; `key_weight` is per position of the list."""
    length = query.shape[2]
    rank_of_block = order.argsort(dim=-1)
    key_blocks, query_blocks = torch.arange(length) // key_size, torch.arange(length) // query_size
    rank = rank_of_block[:, :, query_blocks][..., key_blocks]
    last = kept[:, :, query_blocks, None] - 1
    scores = query @ key.mT * SCALING
    if last_log_gate is not None:
        scores = torch.where(rank == last, scores + last_log_gate[:, :, query_blocks, None], scores)
    scores = scores.masked_fill(rank > last, -torch.inf)
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[:, None, None], torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if key_weight is not None:
        positions = rank * key_size + torch.arange(length) % key_size
        weights = weights * key_weight.flatten(3)[:, :, query_blocks].gather(-1, positions)
    return weights @ value


@pytest.mark.parametrize("length", [1, 5, 12, 30])
@pytest.mark.parametrize("query_size, key_size", [(6, 3), (4, 4), (8, 5)])
@pytest.mark.parametrize("gated, masked, dropped", [(False, False, False), (True, True, True), (True, False, False)])
def test_output_and_gradients_are_those_of_dense_attention(length, query_size, key_size, gated, masked, dropped):
    states = make_states(length)
    order, kept, last_log_gate = make_lists(length, query_size, key_size)
    # Every listed block has a token: a query block that sees none is compared nowhere.
    key_mask = torch.arange(length).expand(BATCH, -1) % key_size != 1 if masked else None
    key_kept, dropout = None, 0.0
    if dropped:
        key_kept, dropout = torch.rand(*order.shape, key_size) >= 0.25, 0.25
    key_weight = key_kept.double() / (1 - dropout) if dropped else None
    gate = last_log_gate if gated else None
    output = attend_blocks(*states, key_mask, order, kept, gate, key_kept, dropout, SCALING, query_size, key_size)
    expected = dense_attention(*states, key_mask, order, kept, gate, key_weight, query_size, key_size)
    torch.testing.assert_close(output, expected, atol=1e-9, rtol=1e-9)

    inputs = [*states, last_log_gate] if gated else states
    direction = torch.randn_like(output)
    gradients = torch.autograd.grad(output, inputs, direction)
    expected_gradients = torch.autograd.grad(expected, inputs, direction)
    # The gates' gradients are summed in float32.
    torch.testing.assert_close(
        gradients, expected_gradients, atol=1e-5 if gated else 1e-9, rtol=1e-5 if gated else 1e-9
    )


@pytest.mark.parametrize("contiguous", [(True, True, True), (True, False, False), (False, False, True)])
def test_layout_in_memory_makes_no_difference(contiguous):
    order, kept, _ = make_lists(13, 4, 2)
    rest = (None, order, kept, None, None, 0.0, SCALING, 4, 2)
    expected_inputs = make_states(13)
    expected = attend_blocks(*expected_inputs, *rest)
    expected.square().sum().backward()
    inputs = [
        (state.detach().contiguous() if dense else state.detach()).requires_grad_()
        for state, dense in zip(expected_inputs, contiguous, strict=True)
    ]
    output = attend_blocks(*inputs, *rest)
    output.square().sum().backward()
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close([state.grad for state in inputs], [state.grad for state in expected_inputs])
    assert output.is_contiguous() == contiguous[2]  # as the values, so that neither caller has to copy
    torch.library.opcheck(attend_blocks, (*(state.detach().float() for state in inputs), *rest))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_multiplies_in_single_precision_on_a_cpu(dtype):
    states = make_states(12, dtype)
    order, kept, _ = make_lists(12, 4, 2)
    rest = (None, order, kept, None, None, 0.0, SCALING, 4, 2)
    output = attend_blocks(*states, *rest)
    output.sum().backward()
    assert output.dtype == dtype and all(state.grad.dtype == dtype for state in states)
    exact = attend_blocks(*(state.detach().float() for state in states), *rest)
    torch.testing.assert_close(output, exact.to(dtype))


def test_it_is_a_well_behaved_operator():
    order, kept, last_log_gate = make_lists(11, 4, 2)
    gate = last_log_gate.float().detach().requires_grad_()
    states = make_states(11, torch.float32)
    torch.library.opcheck(attend_blocks, (*states, None, order, kept, gate, None, 0.0, SCALING, 4, 2))


def test_copies_of_the_file_keep_their_own_operators():
    spec = importlib.util.spec_from_file_location("transformers_modules.copy-1.0", attend_blocks_elastic.__file__)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    states = make_states(12)
    order, kept, _ = make_lists(12, 4, 2)
    arguments = (*states, None, order, kept, None, None, 0.0, SCALING, 4, 2)
    assert copy.NAMESPACE != attend_blocks_elastic.NAMESPACE
    for first, second in ((attend_blocks, copy.attend_blocks), (copy.attend_blocks, attend_blocks)):
        torch.testing.assert_close(first(*arguments), second(*arguments))
