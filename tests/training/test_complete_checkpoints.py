"""Checkpoints that were cut off are passed over, and the best one is never lost."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate import Accelerator

from hf_elastic.training.complete_checkpoints import choose_checkpoint, find_damage
from tests.training import killed_saving_worker
from tests.training.cases import accuracy, make_fresh_model, make_learnable_rows, make_trainer
from tests.training.guarded import assert_same_weights, make_batches, make_guarded_trainer, weights_of

SAVING = {"save_strategy": "steps", "save_steps": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints of three steps, for tests that only read it."""
    folder = tmp_path_factory.mktemp("trained")
    make_guarded_trainer(folder, make_batches(6), **SAVING).train()
    return folder


@pytest.fixture
def checkpoints(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, for tests that damage it."""
    for path in trained.glob("checkpoint-*"):
        (tmp_path / path.name).mkdir()
        for file in path.iterdir():
            (tmp_path / path.name / file.name).write_bytes(file.read_bytes())
    return tmp_path


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def test_a_whole_checkpoint_has_no_damage(trained):
    assert find_damage(trained / "checkpoint-6") is None


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("trainer_state.json", "it has no trainer_state.json"),
        ("model.safetensors", "it has no weights"),
    ],
)
def test_what_is_missing_is_named(checkpoints, name, damage):
    (checkpoints / "checkpoint-6" / name).unlink()
    assert find_damage(checkpoints / "checkpoint-6") == damage


@pytest.mark.parametrize(
    "name", ["trainer_state.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"]
)
def test_a_file_that_is_cut_off_is_named(checkpoints, name):
    cut_off(checkpoints / "checkpoint-6" / name)
    assert find_damage(checkpoints / "checkpoint-6") == f"its {name} is cut off"


def test_a_missing_shard_is_named(checkpoints):
    weights = checkpoints / "checkpoint-6" / "model.safetensors"
    weights.rename(weights.with_name("model-00001-of-00002.safetensors"))
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    weights.with_name("model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    assert find_damage(checkpoints / "checkpoint-6") == "it has no model-00002-of-00002.safetensors"


def test_the_last_whole_checkpoint_is_chosen_and_the_rest_set_aside(checkpoints, caplog):
    (checkpoints / "checkpoint-10").mkdir()
    cut_off(checkpoints / "checkpoint-6" / "optimizer.pt")
    (checkpoints / "checkpoint-x").mkdir()
    assert choose_checkpoint(checkpoints, Accelerator(cpu=True)) == str(checkpoints / "checkpoint-4")
    assert {path.name for path in checkpoints.iterdir()} == {
        *("checkpoint-2", "checkpoint-4", "checkpoint-x", "incomplete-checkpoint-6", "incomplete-checkpoint-10")
    }
    assert "checkpoint-6 is incomplete, since its optimizer.pt is cut off" in caplog.text
    (checkpoints / "checkpoint-6").mkdir()
    assert choose_checkpoint(checkpoints, Accelerator(cpu=True)) == str(checkpoints / "checkpoint-4")
    assert (checkpoints / "incomplete-checkpoint-6-1").is_dir()


def test_without_a_whole_checkpoint_all_are_named_and_left_alone(tmp_path):
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(
        ValueError, match="no checkpoint to resume from. checkpoint-3 is incomplete: it has no trainer"
    ):
        choose_checkpoint(tmp_path, Accelerator(cpu=True))
    assert (tmp_path / "checkpoint-3").is_dir()


def test_a_training_killed_while_it_saved_resumes_from_the_checkpoint_before(tmp_path):
    """With a limit of one checkpoint, the one before is kept until the next one is whole."""
    process = subprocess.run(
        [sys.executable, killed_saving_worker.__file__, str(tmp_path / "killed")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr[-4000:]
    assert find_damage(tmp_path / "killed" / "checkpoint-6") == "it has no trainer_state.json"
    resumed = killed_saving_worker.make_limited_trainer(tmp_path / "killed")
    resumed.train(resume_from_checkpoint=True)
    unbroken = killed_saving_worker.make_limited_trainer(tmp_path / "unbroken")
    unbroken.train()
    assert_same_weights(weights_of(resumed), weights_of(unbroken))
    kept = [path.name for path in (tmp_path / "killed").glob("checkpoint-*")]
    assert kept == ["checkpoint-8"]
    assert find_damage(tmp_path / "killed" / "checkpoint-8") is None


@pytest.mark.parametrize("metric", ["eval_small_accuracy", "mean_loss"])
@pytest.mark.parametrize("limit", [1, 2])
def test_the_best_checkpoint_by_the_metric_of_a_size_is_kept(tmp_path, metric, limit):
    """Resumed in the middle; the parent does all of it."""

    def make(steps: int):
        settings = {"max_steps": steps, "eval_strategy": "steps", "eval_steps": 2, **SAVING}
        settings |= {"save_total_limit": limit, "metric_for_best_model": metric, "load_best_model_at_end": True}
        settings |= {"greater_is_better": metric.endswith("accuracy"), "learning_rate": 0.02}
        rows = make_learnable_rows(64)
        return make_trainer(
            tmp_path,
            settings=settings,
            model=make_fresh_model(),
            train_dataset=rows,
            eval_dataset=rows[:16],
            compute_metrics=accuracy,
        )

    make(8).train()
    trainer = make(16)
    trainer.train(resume_from_checkpoint=True)
    name = metric if metric.startswith("eval_") else f"eval_{metric}"
    values = {log["step"]: log[name] for log in trainer.state.log_history if name in log}
    assert list(values) == list(range(2, 17, 2))
    best = (max if metric.endswith("accuracy") else min)(values.values())
    first = next(step for step, value in values.items() if value == best)
    assert trainer.state.best_model_checkpoint == str(tmp_path / f"checkpoint-{first}")
    kept = {path.name for path in tmp_path.glob("checkpoint-*")}
    assert f"checkpoint-{first}" in kept and len(kept) <= limit
    assert trainer.evaluate()[name] == pytest.approx(best)
