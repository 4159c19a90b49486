import pytest

from tests.training.cases import make_rows, make_trainer


def run(folder, **settings):
    settings = {
        "max_steps": 4,
        "logging_steps": 2,
        "per_device_train_batch_size": 4,
        "log_resources": True,
        **settings,
    }
    trainer = make_trainer(folder, train_dataset=make_rows("classification", 64), settings=settings)
    trainer.train()
    return trainer, [log for log in trainer.state.log_history if "loss" in log]


def test_memory_and_throughput_are_logged(tmp_path):
    _, logs = run(tmp_path)
    assert len(logs) == 2
    for log in logs:
        assert 0 < log["memory_share"] < 1
        assert log["examples_per_second"] > 0


@pytest.mark.parametrize("accumulation", [1, 2])
def test_passes_count_what_the_sizes_cost(tmp_path, accumulation):
    trainer, logs = run(tmp_path, sampling="joint", gradient_accumulation_steps=accumulation)
    sizes = trainer.sampler.sizes.values()
    for log in logs:
        ratio = log["full_model_passes_per_second"] / log["examples_per_second"]
        assert ratio == pytest.approx(sum(sizes) / max(sizes))


def test_nothing_is_logged_unless_asked_for(tmp_path):
    assert "memory_share" not in run(tmp_path, log_resources=False)[1][0]
