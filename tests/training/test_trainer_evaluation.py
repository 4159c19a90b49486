"""Evaluation and prediction against the stock Trainer, and the metrics of every subnet."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification, EarlyStoppingCallback, Trainer, TrainerCallback

from tests.training.cases import (
    CASES,
    NAMES,
    accuracy,
    collate,
    make_fresh_model,
    make_learnable_rows,
    make_model,
    make_rows,
    make_trainer,
)


@pytest.mark.parametrize("subnet", [None, "small"])
@pytest.mark.parametrize("case", CASES)
def test_compute_loss_is_the_parents(tmp_path, case, subnet):
    trainer = make_trainer(tmp_path, case)
    stock = Trainer(make_model(case), trainer.args)
    batch = collate(make_rows(case, 5))
    if subnet:
        batch["subnet"] = subnet
    for items in (None, torch.tensor(7)):
        loss, outputs = trainer.compute_loss(
            trainer.model.eval(), batch, return_outputs=True, num_items_in_batch=items
        )
        expected = stock.compute_loss(stock.model.eval(), batch, num_items_in_batch=items)
        assert torch.equal(loss, expected)
        assert outputs.hidden_states is None


@pytest.mark.parametrize("case", CASES)
def test_evaluation_of_the_full_model_is_the_stock_one(tmp_path, case):
    rows = make_rows(case, 20)
    trainer = make_trainer(tmp_path, case, eval_dataset=rows)
    metrics = trainer.evaluate()
    expected = Trainer(make_model(case), trainer.args, collate, eval_dataset=rows).evaluate()
    assert metrics["eval_loss"] == expected["eval_loss"]
    assert expected.keys() <= metrics.keys()


def test_evaluation_covers_all_subnets(tmp_path):
    trainer = make_trainer(tmp_path, compute_metrics=accuracy)
    metrics = trainer.evaluate()
    per_subnet = {f"eval_{name}_{metric}" for name in [*NAMES, "mean"] for metric in ("loss", "accuracy")}
    speed = {
        f"eval_{name}" for name in ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
    }
    assert metrics.keys() == {"eval_loss", "eval_accuracy", "epoch", *per_subnet, *speed}
    assert metrics["eval_loss"] == metrics["eval_large_loss"]
    for metric in ("loss", "accuracy"):
        values = [metrics[f"eval_{name}_{metric}"] for name in NAMES]
        assert metrics[f"eval_mean_{metric}"] == pytest.approx(sum(values) / 4)
    for name in NAMES:
        with trainer.model.use_subnet(name):
            predictions = trainer.predict(trainer.eval_dataset)
        assert metrics[f"eval_{name}_accuracy"] == predictions.metrics["test_accuracy"]
        assert metrics[f"eval_{name}_loss"] == pytest.approx(predictions.metrics["test_loss"])


def test_metrics_by_subnet_are_those_of_its_name(tmp_path):
    """Also where one name begins as another, and for a full model that has no name."""
    model = make_model("classification")
    subnets = model.config.subnets
    model.config.subnets = {"small": subnets["small"], "small_v2": subnets["tiny"]}
    trainer = make_trainer(tmp_path, model=model, compute_metrics=accuracy)
    assert trainer.subnet_metrics == {}
    flat = trainer.evaluate()
    assert {name: set(metrics) for name, metrics in trainer.subnet_metrics.items()} == dict.fromkeys(
        ["small", "small_v2", "supernet"], {"loss", "accuracy"}
    )
    for key in ("loss", "accuracy"):
        assert trainer.subnet_metrics["small_v2"][key] == flat[f"eval_small_v2_{key}"]
        assert trainer.subnet_metrics["supernet"][key] == flat[f"eval_{key}"]


def test_evaluation_is_one_log_and_one_callback(tmp_path):
    events = []

    class Counter(TrainerCallback):
        def on_evaluate(self, args, state, control, metrics=None, **kwargs):
            events.append(("evaluate", metrics))

        def on_log(self, args, state, control, logs=None, **kwargs):
            events.append(("log", dict(logs)))

    trainer = make_trainer(tmp_path, callbacks=[Counter()])
    metrics = trainer.evaluate()
    assert [event for event, _ in events] == ["log", "evaluate"]
    assert all(f"eval_{name}_loss" in values for _, values in events for name in NAMES)
    assert events[1][1] == metrics


def test_evaluation_of_several_datasets(tmp_path):
    datasets = {"dev": make_rows("classification", 8), "test": make_rows("classification", 8, seed=2)}
    metrics = make_trainer(tmp_path, eval_dataset=datasets).evaluate()
    assert {"eval_dev_loss", "eval_test_loss", "eval_dev_tiny_loss", "eval_test_mean_loss"} <= metrics.keys()


def test_predict_is_the_parents(tmp_path):
    trainer = make_trainer(tmp_path, compute_metrics=accuracy)
    rows = make_rows("classification", 9, seed=3)
    stock = Trainer(make_model("classification"), trainer.args, collate, compute_metrics=accuracy)
    ours, expected = trainer.predict(rows), stock.predict(rows)
    assert (ours.predictions == expected.predictions).all()
    assert {key for key in ours.metrics if "loss" in key or "accuracy" in key} == {"test_loss", "test_accuracy"}
    assert ours.metrics["test_accuracy"] == expected.metrics["test_accuracy"]


def test_predictions_are_in_the_order_of_the_rows(tmp_path):
    rows = make_rows("classification", 21)
    settings = {"train_sampling_strategy": "group_by_length", "per_device_eval_batch_size": 4}
    trainer = make_trainer(tmp_path, settings=settings)
    output = trainer.predict(rows)
    assert output.label_ids.tolist() == [row["labels"] for row in rows]
    for row, logits in zip(rows, output.predictions, strict=True):
        with torch.no_grad():
            expected = trainer.model(**collate([row])).logits[0]
        torch.testing.assert_close(torch.as_tensor(logits), expected, rtol=1e-5, atol=1e-6)


def test_evaluation_leaves_the_chosen_subnet(tmp_path):
    trainer = make_trainer(tmp_path)
    batch = collate(make_rows("classification", 4))
    with trainer.model.use_subnet("tiny"):
        before = trainer.model.eval()(**batch).logits
        trainer.evaluate()
        assert torch.equal(trainer.model(**batch).logits, before)


@pytest.mark.parametrize("metric", ["eval_small_accuracy", "eval_mean_loss", "tiny_loss"])
def test_best_model_is_that_of_the_metric(tmp_path, metric):
    settings = {
        "num_train_epochs": 6,
        "learning_rate": 3e-3,
        "per_device_train_batch_size": 16,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
        "metric_for_best_model": metric,
    }
    rows = make_learnable_rows(64)
    data = {"train_dataset": rows, "eval_dataset": rows}
    trainer = make_trainer(tmp_path, model=make_fresh_model(), compute_metrics=accuracy, settings=settings, **data)
    trainer.train()
    key = "eval_" + metric.removeprefix("eval_")
    values = [log[key] for log in trainer.state.log_history if key in log]
    best = min(values) if metric.endswith("loss") else max(values)
    assert trainer.state.best_metric == best
    assert len(set(values)) > 1
    reloaded = AutoModelForSequenceClassification.from_pretrained(trainer.state.best_model_checkpoint)
    for name, value in reloaded.state_dict().items():
        assert torch.equal(value, trainer.model.state_dict()[name])
    assert trainer.evaluate()[key] == pytest.approx(best)


def test_early_stopping_on_a_subnet(tmp_path):
    settings = {
        "num_train_epochs": 10,
        "learning_rate": 0.0,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_tiny_loss",
    }
    trainer = make_trainer(tmp_path, callbacks=[EarlyStoppingCallback(2)], settings=settings)
    trainer.train()
    assert trainer.state.epoch == 3
