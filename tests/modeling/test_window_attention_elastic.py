"""Attention computed as blocks equals masked dense attention, in every way that computes it."""

import shutil
import warnings

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from hf_elastic.modeling.window_attention_elastic import (
    WindowPattern,
    batched_window_attention,
    flex_window_attention,
    prefers_dense,
    window_attention,
)

SCALING = 0.4
PATTERNS = [
    WindowPattern(0, block_size=4),
    WindowPattern(1, num_global_tokens=1, block_size=8),
    WindowPattern(5, num_global_tokens=3, num_random_blocks=1, block_size=4),
    WindowPattern(8, num_random_blocks=2, block_size=8, seed=3),
    WindowPattern(9, num_global_tokens=10, num_random_blocks=50, block_size=8),
    WindowPattern(4, num_global_tokens=200, block_size=16),
    WindowPattern(300, num_global_tokens=2),
    WindowPattern(16, num_global_tokens=16, num_random_blocks=1, block_size=16),
]
LENGTHS = [1, 7, 16, 45, 77]


def batched(query, key, value, padding_mask, pattern, scaling):
    return batched_window_attention(query, key, value, padding_mask, pattern, scaling, dropout=0.0)


def dense(query, key, value, padding_mask, pattern, scaling):
    """Softmax over everything, spelled out."""
    visible = pattern.dense_mask(query.shape[2], "cpu")[None, None]
    if padding_mask is not None:
        visible = visible & padding_mask[:, None, None]
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    return torch.matmul(scores.softmax(dim=-1), value)


def make_states(length, batch=2, heads=3, head_dim=8, dtype=torch.float32):
    """Query, key, value and the output's gradient, transposed in memory as projections leave them."""
    generator = torch.Generator().manual_seed(length)
    states = torch.randn(4, batch, length, heads, head_dim, generator=generator, dtype=torch.float32).to(dtype)
    return states.transpose(2, 3).unbind()


def make_padding(side, length):
    """Padding on one side: of the first row nothing, of the second most, which pads whole blocks."""
    if side is None:
        return None
    lengths = torch.tensor([[length], [max(1, length // 4)]])
    mask = torch.arange(length) < lengths
    return mask.flip(1) if side == "left" else mask


def outputs_and_gradients(attend, states, padding_mask, pattern, grad_output):
    leaves = [state.detach().requires_grad_() for state in states]
    output = attend(*leaves, padding_mask, pattern, SCALING)
    return output, *torch.autograd.grad(output, leaves, grad_output)


@pytest.mark.parametrize("attend", [window_attention, batched])
@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_equals_dense_attention_forward_and_backward(attend, side, pattern):
    for length in LENGTHS:
        *states, grad_output = make_states(length)
        padding_mask = make_padding(side, length)
        tokens = torch.ones(2, length, dtype=torch.bool) if padding_mask is None else padding_mask
        rows = tokens[:, None, :, None]
        expected = outputs_and_gradients(dense, states, padding_mask, pattern, grad_output * rows)
        actual = outputs_and_gradients(attend, states, padding_mask, pattern, grad_output * rows)
        torch.testing.assert_close(actual[0] * rows, expected[0] * rows, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(actual[1:], expected[1:], atol=1e-5, rtol=1e-5)
        # Rows of padding are arbitrary, but neither they nor what they send back may be infinite.
        everything = outputs_and_gradients(attend, states, padding_mask, pattern, grad_output)
        assert all(tensor.isfinite().all() for tensor in everything)


@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_flex_attention_equals_dense_attention(side, pattern):
    for length in LENGTHS:
        *states, _ = make_states(length)
        padding_mask = make_padding(side, length)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            actual = flex_window_attention(*states, padding_mask, pattern, SCALING)
        rows = 1 if padding_mask is None else padding_mask[:, None, :, None]
        expected = dense(*states, padding_mask, pattern, SCALING)
        torch.testing.assert_close(actual * rows, expected * rows, atol=1e-5, rtol=1e-5)
        assert actual.isfinite().all()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("side", [None, "right"])
def test_flex_attention_compiles_with_its_block_mask(side):
    pattern = WindowPattern(40, num_global_tokens=2, num_random_blocks=2, block_size=32)
    *states, _ = make_states(500, head_dim=16)
    padding_mask = make_padding(side, 500)
    torch._dynamo.reset()
    compiled = torch.compile(flex_window_attention, fullgraph=True, dynamic=False)
    with torch.no_grad():
        actual = compiled(*states, padding_mask, pattern, SCALING)
    rows = 1 if padding_mask is None else padding_mask[:, None, :, None]
    torch.testing.assert_close(actual * rows, dense(*states, padding_mask, pattern, SCALING) * rows)


@pytest.mark.parametrize("attend", [window_attention, batched])
def test_bfloat16_is_as_exact_as_dense_bfloat16(attend):
    pattern = WindowPattern(5, num_global_tokens=3, num_random_blocks=2, block_size=8)
    *states, grad_output = make_states(150, dtype=torch.bfloat16)
    padding_mask = make_padding("right", 150)
    grad_output = grad_output * padding_mask[:, None, :, None]
    exact = outputs_and_gradients(
        dense, [state.float() for state in states], padding_mask, pattern, grad_output.float()
    )
    rounded = outputs_and_gradients(dense, states, padding_mask, pattern, grad_output)
    actual = outputs_and_gradients(attend, states, padding_mask, pattern, grad_output)
    for ours, theirs, truth in zip(actual, rounded, exact, strict=True):
        assert ours.dtype == torch.bfloat16
        weight = padding_mask[:, None, :, None]
        error, allowed = (((tensor.float() - truth) * weight).abs().max() for tensor in (ours, theirs))
        assert error <= 1.5 * allowed


def test_global_keys_sum_their_gradients_in_float32():
    pattern = WindowPattern(2, num_global_tokens=1, block_size=4)
    *states, _ = make_states(2000, batch=1, heads=1, dtype=torch.bfloat16)
    ones = torch.ones_like(states[0])
    *_, actual = outputs_and_gradients(window_attention, states, None, pattern, ones)
    *_, exact = outputs_and_gradients(dense, [state.float() for state in states], None, pattern, ones.float())
    torch.testing.assert_close(actual[:, :, 0].float(), exact[:, :, 0], rtol=0.01, atol=0)


def test_autocast_casts_mixed_inputs_as_attention_does():
    pattern = WindowPattern(4, num_global_tokens=1, block_size=8)
    query, key, value, _ = make_states(50)
    query, key = query.requires_grad_(), key.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = window_attention(query, key, value.bfloat16(), None, pattern, SCALING)
    output.float().square().sum().backward()
    expected = dense(query.detach(), key.detach(), value, None, pattern, SCALING)
    assert output.dtype == torch.bfloat16 and query.grad.dtype == key.grad.dtype == torch.float32
    torch.testing.assert_close(output.float(), expected, atol=0.05, rtol=0.05)


def test_gradcheck_in_float64():
    pattern = WindowPattern(2, num_global_tokens=2, num_random_blocks=1, block_size=2)
    states = [state.double().requires_grad_() for state in make_states(13, heads=1, head_dim=4)[:3]]
    padding_mask = torch.arange(13) < torch.tensor([[13], [9]])

    def attend(*states):
        return window_attention(*states, padding_mask, pattern, SCALING) * padding_mask[:, None, :, None]

    assert torch.autograd.gradcheck(attend, states)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing_gives_the_same_gradients(use_reentrant):
    pattern = WindowPattern(3, num_global_tokens=1, block_size=8)
    *states, _ = make_states(30)
    gradients = []
    for wrap in (lambda function, *args: function(*args), checkpoint):
        arguments = {"use_reentrant": use_reentrant} if wrap is checkpoint else {}
        leaves = [state.detach().requires_grad_() for state in states]
        wrap(window_attention, *leaves, None, pattern, SCALING, **arguments).square().sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.parametrize("trained", [0, 1, 2])
def test_gradient_for_one_input_only(trained):
    pattern = WindowPattern(3, num_global_tokens=1, block_size=8)
    *states, grad_output = make_states(30)
    expected = outputs_and_gradients(dense, states, None, pattern, grad_output)[1 + trained]
    leaf = states[trained].detach().requires_grad_()
    output = window_attention(*states[:trained], leaf, *states[trained + 1 :], None, pattern, SCALING)
    output.backward(grad_output)
    torch.testing.assert_close(leaf.grad, expected, atol=1e-5, rtol=1e-5)


def test_any_memory_layout():
    pattern = WindowPattern(3, num_global_tokens=2, block_size=8)
    *states, _ = make_states(30)
    expected = window_attention(*states, None, pattern, SCALING)
    strange = [state.transpose(2, 3).contiguous().transpose(2, 3).requires_grad_() for state in states]
    output = window_attention(*strange, None, pattern, SCALING)
    torch.testing.assert_close(output, expected)
    output.sum().backward()  # the gradient of a sum is one number, expanded
    dense_gradients = outputs_and_gradients(dense, states, None, pattern, torch.ones_like(output))[1:]
    torch.testing.assert_close([leaf.grad for leaf in strange], list(dense_gradients), atol=1e-5, rtol=1e-5)


def test_a_mask_without_padding_changes_nothing():
    pattern = WindowPattern(3, num_global_tokens=2, block_size=8)
    *states, _ = make_states(30)
    everything = torch.ones(2, 30, dtype=torch.bool)
    assert torch.equal(
        window_attention(*states, everything, pattern, SCALING), window_attention(*states, None, pattern, SCALING)
    )


def test_compiles_in_one_graph_for_all_lengths():
    pattern = WindowPattern(5, num_global_tokens=3, num_random_blocks=2, block_size=8)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(window_attention, backend=counter, fullgraph=True)
    for length in (100, 150, 33, 200):
        *states, grad_output = make_states(length)
        padding_mask = make_padding("right", length)
        actual = outputs_and_gradients(compiled, states, padding_mask, pattern, grad_output)
        expected = outputs_and_gradients(window_attention, states, padding_mask, pattern, grad_output)
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    assert counter.frame_count <= 2  # once for the first length, once for any


def test_the_batched_computation_compiles_with_its_backward_pass():
    pattern = WindowPattern(5, num_global_tokens=3, num_random_blocks=2, block_size=8)
    torch._dynamo.reset()
    compiled = torch.compile(batched, backend="aot_eager", fullgraph=True)
    *states, grad_output = make_states(45)
    padding_mask = make_padding("left", 45)
    actual = outputs_and_gradients(compiled, states, padding_mask, pattern, grad_output)
    expected = outputs_and_gradients(batched, states, padding_mask, pattern, grad_output)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_exports_with_common_operators_for_one_length():
    class Attention(torch.nn.Module):
        def forward(self, query, key, value, padding_mask):
            return window_attention(query, key, value, padding_mask, pattern, SCALING)

    pattern = WindowPattern(5, num_global_tokens=3, num_random_blocks=2, block_size=8)
    inputs = (*make_states(45)[:3], make_padding("right", 45))
    expected = window_attention(*inputs, pattern, SCALING)
    program = torch.export.export(Attention(), inputs)
    assert all(node.target.namespace == "aten" for node in program.graph.nodes if hasattr(node.target, "namespace"))
    for exported in (program.module(), torch.jit.trace(Attention(), inputs)):
        torch.testing.assert_close(exported(*inputs)[0], expected[0], atol=1e-5, rtol=1e-5)


def test_dropout_drops_weights_and_keeps_the_mean():
    pattern = WindowPattern(4, num_global_tokens=2, block_size=8)
    *states, _ = make_states(40)
    padding_mask = make_padding("right", 40)
    torch.manual_seed(0)
    draws = torch.stack([window_attention(*states, padding_mask, pattern, SCALING, dropout=0.2) for _ in range(400)])
    assert not torch.equal(draws[0], draws[1])
    rows = padding_mask[:, None, :, None]
    error = ((draws.mean(dim=0) - dense(*states, padding_mask, pattern, SCALING)) * rows).abs()
    assert error.max() < 0.2 and error.mean() < 0.02


class LargestTensor(TorchDispatchMode):
    """Notes how many elements the largest tensor has that is created within."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        outputs = function(*args, **(kwargs or {}))
        for output in outputs if isinstance(outputs, (tuple, list)) else [outputs]:
            if isinstance(output, torch.Tensor):
                self.elements = max(self.elements, output.numel())
        return outputs


@pytest.mark.parametrize("attend", [window_attention, batched])
def test_memory_is_linear_in_length(attend):
    pattern = WindowPattern(8, num_global_tokens=2, num_random_blocks=1, block_size=8)
    elements = []
    for length in (512, 1024):
        *states, grad_output = make_states(length, batch=1, heads=2, head_dim=4)
        with LargestTensor() as largest:
            outputs_and_gradients(attend, states, None, pattern, grad_output)
        elements.append(largest.elements)
    assert elements[1] <= 2 * elements[0]
    assert elements[1] < 1024 * 1024 / 4


def test_dense_is_preferred_where_blocks_save_nothing():
    assert prefers_dense(128, WindowPattern(64))
    assert not prefers_dense(512, WindowPattern(64, num_global_tokens=2))
    assert prefers_dense(4096, WindowPattern(4096))
    assert prefers_dense(1024, WindowPattern(64, num_global_tokens=512))
    assert prefers_dense(1024, WindowPattern(64, num_random_blocks=16))
    assert not prefers_dense(8192, WindowPattern(512, num_global_tokens=64, num_random_blocks=3))


def test_a_graph_exported_for_any_length_is_dense():
    class Attention(torch.nn.Module):
        def forward(self, query, key, value):
            if prefers_dense(query.shape[2], pattern):
                mask = pattern.dense_mask(query.shape[2], query.device)
                return F.scaled_dot_product_attention(query, key, value, mask, scale=SCALING)
            return window_attention(query, key, value, None, pattern, SCALING)

    pattern = WindowPattern(4, num_global_tokens=1, block_size=8)
    length = torch.export.Dim("length", max=500)
    program = torch.export.export(Attention(), make_states(200)[:3], dynamic_shapes=[{2: length}] * 3)
    for other in (5, 300):
        *states, _ = make_states(other)
        torch.testing.assert_close(
            program.module()(*states), dense(*states, None, pattern, SCALING), atol=1e-5, rtol=1e-5
        )


def test_inputs_that_do_not_fit_are_named():
    query, key, value, _ = make_states(20)
    pattern = WindowPattern(4)
    with pytest.raises(ValueError, match=r"key has the shape \(2, 3, 19, 8\): give that of query, \(2, 3, 20, 8\)"):
        window_attention(query, key[:, :, 1:], value, None, pattern, SCALING)
    with pytest.raises(ValueError, match=r"value has the shape \(1, 3, 20, 8\)"):
        window_attention(query, key, value[:1], None, pattern, SCALING)
    with pytest.raises(
        ValueError, match=r"padding_mask has the shape \(2, 19\).* give truth values of shape \(2, 20\)"
    ):
        window_attention(query, key, value, torch.ones(2, 19, dtype=torch.bool), pattern, SCALING)
    with pytest.raises(ValueError, match=r"torch.int64: give truth values"):
        window_attention(query, key, value, torch.ones(2, 20, dtype=torch.long), pattern, SCALING)
