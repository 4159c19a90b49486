"""The maps to wider and narrower teachers, and what a resumed run reads of them."""

import io

import pytest
import torch

from hf_elastic.training.feature_projections import FeatureProjections


def test_states_are_multiplied_by_the_weight():
    projections = FeatureProjections(8, [12, 4])
    states = torch.randn(2, 5, 8)
    for teacher, size in enumerate((12, 4)):
        expected = torch.einsum("blh,th->blt", states, projections.weights[str(teacher)])
        actual = projections(states, teacher)
        assert actual.shape == (2, 5, size)
        torch.testing.assert_close(actual, expected)


def test_a_narrower_size_uses_the_leading_columns():
    projections = FeatureProjections(8, [12])
    states = torch.randn(2, 5, 6)
    padded = torch.cat([states, torch.zeros(2, 5, 2)], dim=-1)
    actual = projections(states, 0)
    torch.testing.assert_close(actual, projections(padded, 0))
    actual.sum().backward()
    gradient = projections.weights["0"].grad
    assert (gradient[:, 6:] == 0).all() and (gradient[:, :6] != 0).all()


def test_an_equal_size_needs_no_weight():
    projections = FeatureProjections(8, [8, 12])
    states = torch.randn(2, 5, 8)
    assert projections(states, 0) is states
    assert [weight.shape for weight in projections.parameters()] == [(12, 8)]
    assert not list(FeatureProjections(8, [8]).parameters()) and not list(FeatureProjections(8, []).parameters())


def test_the_seed_decides_the_weights_whatever_was_drawn_before():
    first = FeatureProjections(8, [12], seed=3)
    torch.manual_seed(123)
    second, other = FeatureProjections(8, [12], seed=3), FeatureProjections(8, [12], seed=4)
    assert torch.equal(first.weights["0"], second.weights["0"])
    assert not torch.equal(first.weights["0"], other.weights["0"])


def test_making_them_draws_nothing_from_the_run():
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    FeatureProjections(8, [12])
    assert torch.equal(torch.randn(3), expected)


def test_projected_features_are_as_large_as_the_students():
    states = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    assert FeatureProjections(256, [512], seed=1)(states, 0).std().item() == pytest.approx(1.0, rel=0.1)


def test_weights_are_float32_whatever_the_models_precision():
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        projections = FeatureProjections(8, [12])
    finally:
        torch.set_default_dtype(default)
    assert projections.weights["0"].dtype == torch.float32
    assert projections(torch.randn(2, 8, dtype=torch.bfloat16), 0).dtype == torch.float32


def test_the_state_resumes_exactly():
    projections = FeatureProjections(8, [12, 8, 4])
    states = torch.randn(2, 5, 8)
    optimizer = torch.optim.SGD(projections.parameters(), lr=0.1)
    (projections(states, 0).square().mean() + projections(states, 2).square().mean()).backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(projections.state_dict(), file)
    file.seek(0)
    resumed = FeatureProjections(8, [12, 8, 4], seed=1)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for teacher in range(3):
        assert torch.equal(resumed(states, teacher), projections(states, teacher))


@pytest.mark.parametrize("sizes", [(0, [12]), (8, [12, 0])])
def test_sizes_must_be_positive(sizes):
    with pytest.raises(ValueError, match="positive.*0"):
        FeatureProjections(*sizes)
