"""What trackers get, read back from the files of one."""

import pytest

from tests.training.guarded import make_batches, make_guarded_trainer


def test_tensorboard_gets_losses_by_size_and_kind_and_statistics(tmp_path, monkeypatch):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    trainer = make_guarded_trainer(
        tmp_path / "out",
        make_batches(4, bad=(2,)),
        report_to=["tensorboard"],
        on_bad_step="skip",
        statistics_steps=2,
        eval_strategy="steps",
        eval_steps=2,
    )
    trainer.train()
    events = accumulators.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    logged = {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
    by_step = {log["step"]: log for log in trainer.state.log_history if "loss" in log}
    assert list(by_step) == [1, 2, 3, 4]
    for size in ("large", "base", "small", "tiny"):
        kinds = ["loss"] if size == "large" else ["loss", "task_loss", "distillation_loss", "hidden_loss"]
        for name in (f"{kind}_{size}" for kind in kinds):
            expected = {step: log[name] for step, log in by_step.items()}
            assert logged[f"train/{name}"] == pytest.approx(expected, rel=1e-5, nan_ok=True)
        assert list(logged[f"eval/{size}_loss"]) == [2, 4]
    assert list(logged["eval/mean_loss"]) == [2, 4]
    for layer in range(4):
        for name in ("activation_mean", "activation_std", "activation_max"):
            assert list(logged[f"train/{name}/layers.{layer}"]) == [2, 4]
        assert list(logged[f"train/update_ratio/layers.{layer}.attention"]) == [2, 4]
    assert logged["train/bad_steps"] == {2: 1.0}
