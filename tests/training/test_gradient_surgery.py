"""The surgery against the algorithms of the papers, written out for whole gradients."""

import sys

import pytest
import torch

from hf_elastic.training.gradient_surgery import GradientSurgery

pytest.importorskip("torchjd")
SHAPES = [(3, 4), (5,), (2, 2)]


def make_parameters() -> list[torch.Tensor]:
    return [torch.zeros(shape, requires_grad=True) for shape in SHAPES]


def run(method: str, gradients: dict[str, list[torch.Tensor | None]], reduce=lambda gradient: gradient) -> list:
    parameters = make_parameters()
    surgery = GradientSurgery(method, parameters)
    for name, of_subnet in gradients.items():
        for parameter, gradient in zip(parameters, of_subnet, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        surgery.take(name)
        assert all(parameter.grad is None for parameter in parameters)
    surgery.combine(step=0, reduce=reduce)
    return [parameter.grad for parameter in parameters]


def make_gradients(number: int, seed: int = 0) -> dict[str, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return {str(i): [torch.randn(shape, generator=generator) for shape in SHAPES] for i in range(number)}


def flat(gradients: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


def test_two_conflicting_gradients_are_projected_onto_each_others_plane():
    gradients = make_gradients(1)
    first = gradients["0"]
    second = [-0.5 * gradient + noise for gradient, noise in zip(first, make_gradients(1, seed=1)["0"], strict=True)]
    one, other = flat(first), flat(second)
    assert one @ other < 0
    expected = (one - (one @ other) / (other @ other) * other) + (other - (one @ other) / (one @ one) * one)
    torch.testing.assert_close(flat(run("pcgrad", {"a": first, "b": second})), expected)


def test_upgrad_conflicts_with_none():
    gradients = make_gradients(3)
    gradients["3"] = [-gradient for gradient in gradients["0"]]
    gradients["3"][0] = gradients["3"][0] + 1
    together = flat(run("upgrad", gradients))
    assert flat(gradients["0"]) @ flat(gradients["3"]) < 0
    assert all(together @ flat(of_subnet) > -1e-2 * together.norm() for of_subnet in gradients.values())


@pytest.mark.parametrize("method", ["pcgrad", "upgrad"])
def test_gradients_that_agree_are_added(method):
    gradients = {name: [gradient.abs() for gradient in g] for name, g in make_gradients(3).items()}
    expected = sum(flat(of_subnet) for of_subnet in gradients.values())
    torch.testing.assert_close(flat(run(method, gradients)), expected, rtol=1e-3, atol=1e-3)


def test_parts_of_a_batch_add_up():
    parameters = make_parameters()
    surgery = GradientSurgery("pcgrad", parameters)
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        surgery.take("only")
    surgery.combine(step=0, reduce=lambda gradient: gradient)
    assert all((parameter.grad == 2).all() for parameter in parameters)


def test_weights_that_a_subnet_leaves_out():
    """A weight that only one of them has is scaled as the rest of its gradient is; one that none has gets nothing."""
    gradients = {"a": [torch.ones(3, 4), None, None], "b": [-torch.ones(3, 4), torch.ones(5), None]}
    first, second, third = run("pcgrad", gradients)
    products = torch.tensor([[12.0, -12.0], [-12.0, 17.0]])
    weights = torch.tensor([1 + 12 / 12, 1 + 12 / 17], dtype=torch.float64)
    assert third is None and products[0, 1] < 0
    torch.testing.assert_close(first, torch.full((3, 4), float(weights[0] - weights[1])))
    torch.testing.assert_close(second, torch.full((5,), float(weights[1])))


def test_each_gradient_is_reduced_before_they_are_compared():
    """Between two processes gradients may conflict only in their means."""
    gradients = {"a": [torch.ones(s) for s in SHAPES], "b": [torch.ones(s) for s in SHAPES]}
    halved = run("pcgrad", gradients, reduce=lambda gradient: gradient / 2)
    assert all((gradient == 1).all() for gradient in halved)


def test_a_step_is_drawn_like_any_other_time_and_leaves_the_random_state():
    gradients = {**make_gradients(4), "4": [-gradient for gradient in make_gradients(1)["0"]]}
    torch.manual_seed(1)
    first = flat(run("pcgrad", gradients))
    state = torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(flat(run("pcgrad", gradients)), first)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)


def test_torchjd_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchjd", None)
    with pytest.raises(
        ImportError, match=r'gradient_conflicts=.pcgrad. needs `torchjd`: pip install "hf_elastic.surgery."'
    ):
        GradientSurgery("pcgrad", make_parameters())
