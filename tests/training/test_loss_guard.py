"""Every policy against a training that never saw the bad batch."""

import math
import shutil

import pytest
import torch
from transformers import TrainerCallback

from hf_elastic import ElasticTrainer
from hf_elastic.training.callbacks import find_callback
from hf_elastic.training.loss_guard import DivergenceError, LossGuard
from hf_elastic.training.step_statistics import StepStatistics
from hf_elastic.training.subnet_weights import RunningLosses
from tests.training import bad_steps
from tests.training.cases import NAMES, losses_of, make_rows
from tests.training.guarded import (
    BATCH,
    assert_same_weights,
    guard_of,
    make_batches,
    make_guarded_trainer,
    weights_of,
)
from tests.training.teacher_cases import make_teacher


def without(rows: list, *batches: int) -> list:
    return [row for i, row in enumerate(rows) if i // BATCH not in batches]


class WeightsAt(TrainerCallback):
    """Keeps the weights after each step."""

    def __init__(self) -> None:
        self.steps = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.steps.append({name: value.detach().clone() for name, value in model.state_dict().items()})


class SpoilWeights(TrainerCallback):
    """Sets a weight of the classifier to NaN after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            with torch.no_grad():
                model.classifier.weight[0, 0] = math.nan


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        ("adamw_torch_fused", {}),
        ("adamw_torch", {"max_grad_norm": 0.0}),
        ("sgd", {"gradient_accumulation_steps": 2}),
        ("adafactor", {}),
        ("adamw_torch", {"group_penalty": 0.1}),
        ("adamw_torch", {"weight_averaging": "ema", "ema_decay": 0.7}),
    ],
)
def test_a_skipped_step_is_as_if_it_had_not_been(tmp_path, optimizer, settings):
    rows = make_batches(8, bad=(3,))
    settings = {"optim": optimizer, "weight_decay": 0.1, **settings}
    skipping = make_guarded_trainer(tmp_path, rows, on_bad_step="skip", **settings)
    skipping.train()
    left_out = (2, 3) if settings.get("gradient_accumulation_steps") else (3,)
    reference = make_guarded_trainer(tmp_path, without(rows, *left_out), **settings)
    reference.train()
    assert skipping.state.global_step == reference.state.global_step + 1
    assert_same_weights(weights_of(skipping), weights_of(reference))
    assert guard_of(skipping).bad_steps == 1


def test_a_skipped_step_leaves_projections_of_features_alone(tmp_path):
    """They are optimized beside the model, whose gradients alone would not be all that is dropped."""
    rows, trainers = make_batches(4, bad=(1,)), []
    for data in (rows, without(rows, 1)):
        teacher = make_teacher(num_labels=1)
        trainers.append(make_guarded_trainer(tmp_path, data, teachers=[teacher], on_bad_step="skip"))
        trainers[-1].train()
    weights = [trainer.projection_training.projections.state_dict() for trainer in trainers]
    assert_same_weights(*weights)
    assert_same_weights(*(weights_of(trainer) for trainer in trainers))


def test_a_skipped_step_is_not_in_the_running_losses(tmp_path):
    rows = make_batches(4, bad=(1,))
    trainer = make_guarded_trainer(tmp_path, rows, on_bad_step="skip", subnet_weighting="by_loss")
    trainer.train()
    means = find_callback(trainer, RunningLosses).means
    assert len(means) == 4 and all(map(math.isfinite, means.values()))
    assert all(torch.isfinite(value).all() for value in weights_of(trainer).values())


@pytest.mark.parametrize("settings", [{"subnet_weighting": "by_loss"}, {"percentile_clipping": 50}])
def test_what_later_steps_go_by_forgets_a_spike(tmp_path, settings):
    """Its losses and norms are numbers like any others."""
    rows = make_batches(8)
    for row in rows[4 * BATCH : 5 * BATCH]:
        row["labels"] = 1000.0
    skipping = make_guarded_trainer(
        tmp_path, rows, on_bad_step="skip", spike_factor=5.0, spike_window=2, learning_rate=0.01, **settings
    )
    skipping.train()
    reference = make_guarded_trainer(tmp_path, without(rows, 4), learning_rate=0.01, **settings)
    reference.train()
    assert guard_of(skipping).bad_steps == 1
    states = [find_callback(trainer, StepStatistics).state() for trainer in (skipping, reference)]
    assert states[0] == states[1]
    assert_same_weights(weights_of(skipping), weights_of(reference))


def test_a_resumed_training_may_have_a_shorter_window(tmp_path):
    """The losses fall, so that the median of the last ones is lower than that of all."""
    guard = LossGuard()
    guard.recent_losses = [9.0, 9.0, 9.0, 1.0, 1.0]
    trainer = make_guarded_trainer(tmp_path, make_batches(2), spike_factor=2.0, spike_window=2, on_bad_step="skip")
    trainer.create_optimizer()
    guard.add_loss(torch.tensor(3.0))
    guard.check_step(trainer, 1.0)
    assert guard.bad_steps == 1


def test_the_guard_compares_the_mean_of_the_sizes(tmp_path):
    trainer = make_guarded_trainer(tmp_path, make_batches(2), spike_factor=1e6, gradient_accumulation_steps=2)
    trainer.train()
    (log,) = losses_of(trainer)
    mean = sum(log[f"loss_{name}"] for name in NAMES) / len(NAMES)
    assert guard_of(trainer).recent_losses == pytest.approx([mean])


def test_a_training_after_one_that_stopped_logs_only_its_own(tmp_path):
    trainer = make_guarded_trainer(tmp_path, make_batches(2, bad=(0,)))
    with pytest.raises(DivergenceError):
        trainer.train()
    trainer.train_dataset = make_batches(2)
    trainer.train()
    assert all(math.isfinite(value) for log in losses_of(trainer) for value in log.values())


def test_the_schedule_goes_on_when_a_step_is_skipped(tmp_path):
    trainer = make_guarded_trainer(
        tmp_path, make_batches(4, bad=(1,)), on_bad_step="skip", lr_scheduler_type="linear", learning_rate=0.4
    )
    trainer.train()
    rates = [log["learning_rate"] for log in trainer.state.log_history if "loss" in log]
    assert rates == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert [log["bad_steps"] for log in trainer.state.log_history if "bad_steps" in log] == [1]


def test_gradients_that_are_not_finite_are_bad_although_the_loss_is(tmp_path):
    class SpoilGradients(TrainerCallback):
        def on_substep_end(self, args, state, control, model=None, **kwargs):
            if state.global_step == 1:
                model.classifier.weight.grad[0, 0] = math.inf

    rows = make_batches(6)
    settings = {"gradient_accumulation_steps": 2}
    skipping = make_guarded_trainer(tmp_path, rows, callbacks=[SpoilGradients()], on_bad_step="skip", **settings)
    skipping.train()
    reference = make_guarded_trainer(tmp_path, without(rows, 2, 3), **settings)
    reference.train()
    assert_same_weights(weights_of(skipping), weights_of(reference))


def test_rolling_back_goes_on_with_the_next_data(tmp_path):
    """Checkpoints after 2 and 4 steps; the sixth is bad, so the fifth is lost as well."""
    rows = make_batches(8, bad=(5,))
    rolling = make_guarded_trainer(
        tmp_path / "rolling", rows, on_bad_step="rollback", save_strategy="steps", save_steps=2, weight_decay=0.1
    )
    rolling.train()
    reference = make_guarded_trainer(tmp_path / "reference", without(rows, 4, 5), weight_decay=0.1)
    reference.train()
    assert rolling.state.global_step == 8
    assert_same_weights(weights_of(rolling), weights_of(reference))


def test_averaged_weights_are_rolled_back_too(tmp_path):
    """The fourth step goes back to the weights of the second one, which the average does not take in again."""
    settings = {"on_bad_step": "rollback", "save_strategy": "steps", "save_steps": 2}
    settings |= {"weight_averaging": "ema", "ema_decay": 0.7}
    weights = WeightsAt()
    trainer = make_guarded_trainer(tmp_path, make_batches(6, bad=(3,)), callbacks=[weights], **settings)
    trainer.train()
    assert_same_weights(weights.steps[3], weights.steps[1])
    average = {name: value.double() for name, value in weights.steps[0].items()}
    for step in (1, 4, 5):
        average = {name: 0.7 * average[name] + 0.3 * value.double() for name, value in weights.steps[step].items()}
    for name, value in weights_of(trainer).items():
        torch.testing.assert_close(value.double(), average[name], rtol=1e-5, atol=1e-6)


def test_the_learning_rate_is_not_rolled_back(tmp_path):
    trainer = make_guarded_trainer(
        tmp_path,
        make_batches(8, bad=(5,)),
        on_bad_step="rollback",
        save_strategy="steps",
        save_steps=2,
        lr_scheduler_type="cosine",
        learning_rate=1e-3,
    )
    trainer.train()
    rates = [log["learning_rate"] for log in trainer.state.log_history if "loss" in log]
    assert rates == pytest.approx([1e-3 * (1 + math.cos(math.pi * step / 8)) / 2 for step in range(8)], abs=1e-9)


def test_each_further_bad_step_goes_one_checkpoint_further_back(tmp_path):
    """The weights are spoiled before they are saved at step 3: that checkpoint does not help, the one before does."""
    weights = WeightsAt()
    trainer = make_guarded_trainer(
        tmp_path,
        make_batches(6),
        callbacks=[weights, SpoilWeights(3)],
        on_bad_step="rollback",
        save_strategy="steps",
        save_steps=1,
    )
    trainer.train()
    assert guard_of(trainer).bad_steps == 2  # steps 4 and 5
    assert_same_weights(weights.steps[4], weights.steps[1])
    assert all(torch.isfinite(value).all() for value in weights_of(trainer).values())


def test_without_a_checkpoint_of_this_training_the_step_is_left_out(tmp_path):
    """What another training left in the folder is not gone back to."""
    settings = {"on_bad_step": "rollback", "save_strategy": "steps", "save_steps": 3}
    make_guarded_trainer(tmp_path, make_batches(3), **{**settings, "seed": 1}, learning_rate=0.1).train()
    assert (tmp_path / "checkpoint-3").is_dir()
    rows = make_batches(3, bad=(1,))
    rolling = make_guarded_trainer(tmp_path, rows, **settings)
    rolling.train()
    reference = make_guarded_trainer(tmp_path / "reference", without(rows, 1))
    reference.train()
    assert_same_weights(weights_of(rolling), weights_of(reference))


def test_stopping_says_what_was_seen_and_keeps_the_weights(tmp_path):
    weights = WeightsAt()
    trainer = make_guarded_trainer(tmp_path, make_batches(4, bad=(2,)), callbacks=[weights])
    assert trainer.args.on_bad_step == "stop"
    with pytest.raises(DivergenceError, match="Step 3 is bad: its loss is nan.*lower learning rate.*'skip'"):
        trainer.train()
    assert_same_weights(weights_of(trainer), weights.steps[-1])
    assert len(weights.steps) == 2


def test_too_many_bad_steps_in_a_row_stop_the_training(tmp_path):
    trainer = make_guarded_trainer(tmp_path, make_batches(6, bad=(0, 2, 3, 4)), on_bad_step="skip", max_bad_steps=2)
    with pytest.raises(DivergenceError, match="Step 5 is bad.*the 2 steps before.*max_bad_steps"):
        trainer.train()
    assert guard_of(trainer).bad_steps == 4


def test_ignoring_lets_everything_through(tmp_path):
    trainer = make_guarded_trainer(tmp_path, make_batches(2, bad=(1,)), on_bad_step="ignore")
    trainer.train()
    assert not any(isinstance(callback, LossGuard) for callback in trainer.callback_handler.callbacks)
    assert torch.isnan(weights_of(trainer)["classifier.weight"]).any()


def test_a_spike_is_skipped(tmp_path):
    """One batch is mislabelled by a thousand."""
    rows = make_batches(10)
    for row in rows[6 * BATCH : 7 * BATCH]:
        row["labels"] = 1000.0
    settings = {"spike_factor": 5.0, "spike_window": 4, "learning_rate": 0.01, "on_bad_step": "skip"}
    skipping = make_guarded_trainer(tmp_path, rows, **settings)
    skipping.train()
    reference = make_guarded_trainer(tmp_path, without(rows, 6), learning_rate=0.01)
    reference.train()
    assert guard_of(skipping).bad_steps == 1
    assert len(guard_of(skipping).recent_losses) == 4
    assert_same_weights(weights_of(skipping), weights_of(reference))


def test_there_are_no_spikes_before_the_window_is_full(tmp_path):
    rows = make_batches(4)
    rows[2 * BATCH]["labels"] = 1000.0
    trainer = make_guarded_trainer(tmp_path, rows, spike_factor=2.0, spike_window=4)
    trainer.train()
    assert guard_of(trainer).bad_steps == 0


@pytest.mark.parametrize("restores_callbacks", [False, True])
def test_a_resumed_training_remembers(tmp_path, restores_callbacks):
    """Ended after step 4; step 6 is a spike by the losses before, and both go back to checkpoints from before."""
    rows = make_batches(10, bad=(1, 7))
    rows[5 * BATCH]["labels"] = 1000.0
    settings = {"spike_factor": 5.0, "spike_window": 3, "on_bad_step": "rollback"}
    settings |= {"save_strategy": "steps", "save_steps": 2}
    settings |= {"restore_callback_states_from_checkpoint": restores_callbacks}
    unbroken = make_guarded_trainer(tmp_path / "unbroken", rows, **settings)
    unbroken.train()
    shutil.copytree(tmp_path / "unbroken" / "checkpoint-4", tmp_path / "resumed" / "checkpoint-4")
    resumed = make_guarded_trainer(tmp_path / "resumed", rows, **settings)
    resumed.train(resume_from_checkpoint=True)
    assert guard_of(unbroken).bad_steps == 3
    assert guard_of(resumed).state() == guard_of(unbroken).state()
    assert_same_weights(weights_of(resumed), weights_of(unbroken))


def with_scaler(trainer: ElasticTrainer, scale: float) -> torch.amp.GradScaler:
    """Has a training on the CPU scale its losses, as one in float16 does on a GPU."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    accelerator = trainer.accelerator
    accelerator.scaler = scaler
    # accelerate does it by itself, but for float16 alone.
    accelerator.unscale_gradients = lambda: scaler.unscale_(accelerator._optimizers[-1].optimizer)
    return scaler


def test_gradients_that_the_scaler_skips_are_not_bad(tmp_path):
    """The first scales are too large for any gradient."""
    trainer = make_guarded_trainer(tmp_path, make_batches(8), on_bad_step="stop")
    before = weights_of(trainer)
    scaler = with_scaler(trainer, scale=2.0**127)
    trainer.train()
    norms = [log["grad_norm"] for log in trainer.state.log_history if "grad_norm" in log]
    assert not math.isfinite(norms[0]) and math.isfinite(norms[-1])
    assert scaler.get_scale() < 2.0**127
    assert guard_of(trainer).bad_steps == 0
    assert not torch.equal(weights_of(trainer)["classifier.weight"], before["classifier.weight"])


def test_a_bad_loss_is_left_out_with_a_scaler(tmp_path):
    rows = make_batches(6, bad=(2,))
    for row in rows[4 * BATCH : 5 * BATCH]:
        row["labels"] = 1000.0
    skipping = make_guarded_trainer(tmp_path, rows, on_bad_step="skip", spike_factor=5.0, spike_window=2)
    with_scaler(skipping, scale=1024.0)
    skipping.train()
    reference = make_guarded_trainer(tmp_path, without(rows, 2, 4))
    reference.train()
    assert guard_of(skipping).bad_steps == 2
    for name, value in weights_of(reference).items():
        torch.testing.assert_close(weights_of(skipping)[name], value)


def test_a_training_that_began_without_a_guard_is_resumed_with_one(tmp_path):
    rows = make_batches(4)
    settings = {"save_strategy": "steps", "save_steps": 2}
    make_guarded_trainer(tmp_path, rows, on_bad_step="ignore", **settings).train()
    resumed = make_guarded_trainer(tmp_path, rows, **settings)
    resumed.train(str(tmp_path / "checkpoint-2"))
    assert guard_of(resumed).saved_steps == [2, 4]


def test_a_second_training_starts_afresh(tmp_path):
    trainer = make_guarded_trainer(tmp_path, make_batches(3, bad=(2,)), on_bad_step="skip")
    trainer.train()
    trainer.train_dataset = make_rows("regression", 2 * BATCH)
    trainer.train()
    assert guard_of(trainer).bad_steps == 0


def test_two_processes_leave_out_what_one_of_them_sees(two_processes, tmp_path):
    """The row without a label is the last of a batch of two processes, hence only the second one has it."""
    results = [each["bad steps"] for each in two_processes]
    expected = bad_steps.run(tmp_path, batch_size=BATCH)
    assert [result["processes"] for result in (*results, expected)] == [2, 2, 1]
    for policy, (number, weights) in expected["runs"].items():
        assert number == 1
        for result in results:
            assert result["runs"][policy][0] == number
            for name, value in weights.items():
                torch.testing.assert_close(result["runs"][policy][1][name], value, rtol=1e-4, atol=1e-5)
