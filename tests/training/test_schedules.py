import pytest

from hf_elastic.training.schedules import SCHEDULES, value_at


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [2.0, 2.0, 2.0, 2.0, 2.0]),
        ("linear", [2.0, 1.75, 1.5, 1.25, 1.0]),
        ("cosine", [2.0, 1.8535534, 1.5, 1.1464466, 1.0]),
    ],
)
def test_values(schedule, expected):
    values = [value_at(schedule, 2.0, 1.0, progress) for progress in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert values == pytest.approx(expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_weights_may_grow_from_zero(schedule):
    weights = [value_at(schedule, 0.0, 1.0, step / 10) for step in range(11)]
    assert weights == sorted(weights) and weights[0] == 0.0


def test_unknown_schedule_lists_the_choices():
    with pytest.raises(ValueError, match="'exponential'.*constant, linear, cosine"):
        value_at("exponential", 1.0, 0.0, 0.5)


@pytest.mark.parametrize("progress", [-0.1, 1.5])
def test_progress_outside_of_the_training(progress):
    with pytest.raises(ValueError, match=f"progress={progress}"):
        value_at("linear", 1.0, 0.0, progress)
