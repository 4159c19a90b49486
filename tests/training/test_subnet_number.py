import pytest
from transformers import TrainerCallback, TrainerControl, TrainerState

from hf_elastic.training.subnet_number import AdaptSubnetNumber
from tests.training.cases import make_model
from tests.training.resource_cases import Arguments, make_micro_batch_trainer


class Clock:
    """Time that goes on when the test says so."""

    def __init__(self, monkeypatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("hf_elastic.training.resource_callback.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def numbers(tmp_path, clock, seconds, max_minutes=1.0, start=1, max_steps=60):
    """The number after each step, of steps that take so many seconds."""
    args = Arguments(str(tmp_path), max_minutes=max_minutes, num_random_subnets=start, report_to="none", use_cpu=True)
    state, callback = TrainerState(max_steps=max_steps), AdaptSubnetNumber()
    callback.on_train_begin(args, state, TrainerControl(), model=make_model("classification"))
    after = []
    for duration in seconds:
        clock.now += duration
        state.global_step += 1
        callback.on_step_end(args, state, TrainerControl())
        after.append(callback.number)
    return after


def test_time_to_spare_adds_subnets_up_to_all(tmp_path, clock):
    assert numbers(tmp_path, clock, [0.5] * 9, start=0) == [0, 0, 1, 1, 1, 2, 2, 2, 2]


def test_too_little_time_takes_subnets_away_down_to_none(tmp_path, clock):
    assert numbers(tmp_path, clock, [1.2] * 9, start=2) == [2, 2, 1, 1, 1, 0, 0, 0, 0]


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
    args = Arguments(str(tmp_path), max_minutes=1.0, report_to="none", use_cpu=True)
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
    first = make_micro_batch_trainer(tmp_path, settings=settings, callbacks=[AdaptSubnetNumber()])
    first.train()
    logged = [log["num_random_subnets"] for log in first.state.log_history if "loss" in log]
    assert logged == [0, 0, 1, 1, 1, 2, 2]

    class Begin(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            callbacks = second.callback_handler.callbacks
            self.number = next(c for c in callbacks if isinstance(c, AdaptSubnetNumber)).number

    begin = Begin()
    second = make_micro_batch_trainer(tmp_path, settings=settings, callbacks=[AdaptSubnetNumber(), begin])
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert begin.number == 1
    logged = [log["num_random_subnets"] for log in second.state.log_history if "loss" in log]
    assert logged == [0, 0, 1, 1, 1, 2, 2]
