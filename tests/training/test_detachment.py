import pytest

from hf_elastic.training.detachment import is_detached


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_how_often(probability):
    draws = [is_detached("small", step, probability, 1, seed=0) for step in range(4000)]
    assert sum(draws) / len(draws) == pytest.approx(probability, abs=0.03)


def test_a_draw_holds_for_an_interval():
    draws = [is_detached("small", step, 0.5, 10, seed=0) for step in range(200)]
    assert all(len(set(draws[start : start + 10])) == 1 for start in range(0, 200, 10))
    assert len(set(draws)) == 2


def test_subnets_and_seeds_are_drawn_by_themselves():
    runs = {
        (name, seed): tuple(is_detached(name, step, 0.5, 1, seed) for step in range(64))
        for name in ("small", "tiny")
        for seed in (0, 1)
    }
    assert len(set(runs.values())) == 4


def test_never_without_a_probability():
    assert not any(is_detached("small", step, 0.0, 1, seed=0) for step in range(100))
