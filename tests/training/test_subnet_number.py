import pytest
from transformers import TrainerControl, TrainerState

from hf_elastic.training.subnet_number import AdaptSubnetNumber
from tests.training.cases import NAMES, logged, losses_of, make_arguments, make_model, make_trainer, train


class Clock:
    """Time that goes on when the test says so."""

    def __init__(self, monkeypatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("hf_elastic.training.resource_callback.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def numbers(tmp_path, clock, seconds, max_minutes=1.0, start=1, max_steps=60, max_examples=None):
    """The number after each step, of steps that take so many seconds."""
    args = make_arguments(tmp_path, max_minutes=max_minutes, num_random_subnets=start, max_examples=max_examples)
    state, callback = TrainerState(max_steps=max_steps), AdaptSubnetNumber()
    callback.on_train_begin(args, state, TrainerControl(), model=make_model("classification"))
    after = []
    for duration in seconds:
        clock.now += duration
        state.global_step += 1
        callback.on_examples(8, 1.0)
        callback.on_step_end(args, state, TrainerControl())
        after.append(callback.number)
    return after


def test_time_to_spare_adds_subnets_up_to_all(tmp_path, clock):
    assert numbers(tmp_path, clock, [0.5] * 9, start=0) == [0, 0, 1, 1, 1, 2, 2, 2, 2]


def test_too_little_time_takes_subnets_away_down_to_none(tmp_path, clock):
    assert numbers(tmp_path, clock, [1.2] * 9, start=2) == [2, 2, 1, 1, 1, 0, 0, 0, 0]


def test_examples_may_end_a_training_before_its_steps(tmp_path, clock):
    """60 steps would take 72 seconds, and the 30 steps that 240 examples are good for half of that."""
    assert numbers(tmp_path, clock, [1.2] * 4, start=0, max_examples=240) == [0, 0, 1, 1]


def test_between_the_two_the_number_stays(tmp_path, clock):
    assert numbers(tmp_path, clock, [0.9] * 9) == [1] * 9


def test_the_time_per_step_is_that_since_the_last_change(tmp_path, clock):
    """Slow steps first: what they took is gone, but the later ones are projected as fast as they are."""
    assert numbers(tmp_path, clock, [5.0] * 3 + [0.4] * 3) == [1, 1, 0, 0, 0, 1]


def test_a_pause_between_two_trainings_does_not_count(tmp_path, clock):
    callback = AdaptSubnetNumber()
    clock.now = 100.0
    saved = callback.state()["attributes"]
    assert saved["seconds"] == 100.0
    clock.now = 5000.0
    args = make_arguments(tmp_path, max_minutes=1.0)
    resumed = AdaptSubnetNumber()
    for name, value in saved.items():
        setattr(resumed, name, value)
    resumed.on_train_begin(args, TrainerState(global_step=3), TrainerControl(), model=make_model("classification"))
    clock.now = 5001.0
    assert resumed.read_clock() == 101.0


def test_resumes_with_its_number(tmp_path):
    settings = {
        "max_minutes": 60.0,
        "num_random_subnets": 0,
        "adapt_num_random_subnets": True,
        "max_steps": 7,
        "save_strategy": "steps",
        "save_steps": 4,
    }
    first, _ = train(tmp_path, **settings)
    assert logged(first, "num_random_subnets") == [0, 0, 1, 1, 1, 2, 2]
    assert [{name for name in NAMES if f"loss_{name}" in log} for log in losses_of(first)] == [
        set(first.sampler.draw(step, number)) for step, number in enumerate([0, 0, 0, 1, 1, 1, 2])
    ]
    second = make_trainer(tmp_path, settings=settings)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert logged(second, "num_random_subnets") == [0, 0, 1, 1, 1, 2, 2]
    other = make_trainer(tmp_path, settings={**settings, "num_random_subnets": 2})
    other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert logged(other, "num_random_subnets") == [0, 0, 1, 1, 2, 2, 2]
