import pytest

from hf_elastic.compression.pareto import pareto_front


@pytest.mark.parametrize(
    ("costs", "values", "front"),
    [
        ([20, 10, 5], [0.9, 0.8, 0.7], [2, 1, 0]),
        ([20, 10, 5], [0.9, 0.9, 0.7], [2, 1]),  # as good at less cost
        ([20, 10, 5], [0.9, 0.6, 0.7], [2, 0]),  # worse at more cost
        ([10, 10, 5], [0.8, 0.9, 0.7], [2, 1]),  # better at the same cost
        ([10, 10], [0.9, 0.9], [0]),
        ([7], [0.5], [0]),
    ],
)
def test_front(costs, values, front):
    assert pareto_front(costs, values) == front
    assert pareto_front(costs, [-value for value in values], greater_is_better=False) == front
