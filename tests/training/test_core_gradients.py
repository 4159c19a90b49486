import pytest
import torch

from hf_elastic.training.core_gradients import scaled_gradients


def gradients(factor: float) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    core, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
    inputs = torch.randn(5, 3)
    head(core(inputs)).sum().backward()  # what a larger size has added before
    with scaled_gradients(core.parameters(), factor):
        head(core(inputs)).square().sum().backward()
    return core.weight.grad, head.weight.grad


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 2.0])
def test_only_the_gradients_of_the_core_within_the_context_are_scaled(factor):
    (whole, head), (nothing, _), (core, head_too) = gradients(1.0), gradients(0.0), gradients(factor)
    torch.testing.assert_close(core, nothing + factor * (whole - nothing))
    assert torch.equal(head_too, head)


def test_gradients_are_whole_after_an_error_within():
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="broken"), scaled_gradients([weight], 0.0):
        raise RuntimeError("broken")
    weight.sum().backward()
    assert weight.grad.tolist() == [1.0, 1.0]


def test_frozen_weights_are_left_alone():
    with scaled_gradients([torch.ones(2)], 0.5):
        pass
