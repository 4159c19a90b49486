"""Linear attention equals the quadratic computation with the same kernel."""

import pytest
import torch

from hf_elastic.modeling.linear_attention_elastic import linear_attention


def quadratic(query, key, value, padding_mask):
    weights = (torch.nn.functional.elu(query) + 1) @ (torch.nn.functional.elu(key) + 1).mT
    if padding_mask is not None:
        weights = weights * padding_mask[:, None, None]
    return weights / weights.sum(dim=-1, keepdim=True) @ value


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("length", [1, 7, 64])
def test_equals_the_quadratic_computation(length, padded):
    generator = torch.Generator().manual_seed(length)
    states = [torch.randn(2, 3, length, 8, generator=generator, requires_grad=True) for _ in range(3)]
    padding_mask = None
    if padded:
        padding_mask = torch.ones(2, length, dtype=torch.bool)
        padding_mask[1, length // 2 + 1 :] = False
    actual, expected = linear_attention(*states, padding_mask), quadratic(*states, padding_mask)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    weight = torch.randn(actual.shape, generator=generator)
    gradients = [torch.autograd.grad((output * weight).sum(), states) for output in (actual, expected)]
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_a_row_of_padding_is_zero():
    states = [torch.randn(1, 2, 5, 4) for _ in range(3)]
    assert not linear_attention(*states, torch.zeros(1, 5, dtype=torch.bool)).any()


def test_half_precision_keeps_its_type_and_sums_in_single_precision():
    states = [torch.randn(1, 2, 2000, 8, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    exact = linear_attention(*states)
    for context in (linear_attention(*(state.bfloat16() for state in states)),):
        assert context.dtype == torch.bfloat16
        torch.testing.assert_close(context.float(), exact, atol=0.01, rtol=0.02)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(linear_attention(*states), exact)
