"""One run for all sizes: its phases, what it learns, what it saves."""

import json
import sys

import datasets
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSequenceClassification, EvalPrediction

from hf_elastic import ElasticTrainingArguments
from hf_elastic.training.family import read_metrics, train_family

from .cases import NAMES, collate, make_fresh_model, make_learnable_rows, make_model
from .teacher_cases import make_numbered_rows


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def arguments(folder, **settings):
    values = {
        "num_train_epochs": 1,
        "per_device_train_batch_size": 8,
        "learning_rate": 5e-3,
        "disable_tqdm": True,
        "report_to": "none",
        "save_strategy": "no",
    }
    return ElasticTrainingArguments(str(folder), **{**values, **settings})


def pad(rows):
    ids = pad_sequence([torch.tensor(row["input_ids"]) for row in rows], batch_first=True)
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


def test_every_size_learns_and_every_phase_is_announced_and_timed(tmp_path):
    rows, phases = make_learnable_rows(320), []
    run = train_family(
        make_fresh_model(),
        arguments(tmp_path, num_train_epochs=4),
        rows[:256],
        rows[256:],
        compute_metrics=accuracy,
        data_collator=pad,
        finetune_epochs=4,
        rank_examples=20,
        on_phase=phases.append,
    )
    assert phases == list(run.seconds) == ["fine-tune", "rank", "co-train", "evaluate"]
    assert list(run.metrics) == NAMES
    assert all(metrics["accuracy"] > 0.6 for metrics in run.metrics.values()), run.metrics
    assert set(run.metrics["tiny"]) == {"accuracy", "loss"}
    assert run.scores["tiny"] == {"accuracy": run.metrics["tiny"]["accuracy"]}
    assert run.evaluate(rows[256:]) == run.metrics


def test_sizes_without_the_whole_model_are_fine_tuned_from_it(tmp_path):
    model, rows = make_fresh_model(), make_learnable_rows(32)
    small = model.config.subnets["tiny"]
    model.config.subnets = {"tiny": small}
    left_out = model.model.layers[1].mlp.down_proj.weight  # by the only size
    before = left_out.detach().clone()
    run = train_family(
        model,
        arguments(tmp_path),
        rows,
        data_collator=pad,
        finetune_epochs=1,
        rank_examples=0,
        compute_metrics=accuracy,
    )
    assert 1 not in small.layers and not torch.equal(left_out, before)
    assert model.config.subnets == {"tiny": small} and run.seconds.keys() >= {"fine-tune", "co-train"}


def test_sizes_are_scored_on_the_test_data_if_there_are_some(tmp_path):
    rows = make_learnable_rows(48)
    data = {"train_dataset": rows[:16], "test_dataset": rows[24:], "data_collator": pad, "compute_metrics": accuracy}
    args = arguments(tmp_path, max_steps=1)
    run = train_family(make_fresh_model(), args, **data, eval_dataset=rows[16:24], rank_examples=0)
    assert run.scored_dataset == rows[24:]
    assert run.metrics == run.evaluate(rows[24:]) != run.evaluate(rows[16:24])
    run.save(tmp_path / "saved")
    recorded = json.loads((tmp_path / "saved" / "run.json").read_text())["data"]
    assert {use: data["rows"] for use, data in recorded.items()} == {"train": 16, "evaluation": 8, "test": 24}
    only = train_family(make_fresh_model(), args, **data, rank_examples=0)
    assert only.metrics == run.metrics
    with pytest.raises(TypeError, match="data are a dict of 'test'. Give one dataset"):
        train_family(make_fresh_model(), args, **{**data, "test_dataset": {"test": rows}})


def test_phases_can_be_left_out(tmp_path):
    rows = make_learnable_rows(16)
    run = train_family(make_fresh_model(), arguments(tmp_path, max_steps=1), rows, data_collator=pad, rank_examples=0)
    assert list(run.seconds) == ["co-train"]
    assert run.metrics == {}


def test_evaluation_and_checkpoints_concern_the_common_training_alone(tmp_path):
    settings = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    args = arguments(tmp_path, metric_for_best_model="eval_small_accuracy", **settings)
    rows = make_learnable_rows(48)
    train_family(make_fresh_model(), args, rows[:32], rows[32:], None, accuracy, finetune_epochs=1, data_collator=pad)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]
    assert not list(tmp_path.glob("fine-tune/checkpoint-*"))


def test_what_is_saved_loads_with_its_scores(tmp_path):
    rows = make_learnable_rows(24)
    model = make_fresh_model()
    model.config.subnets = {"tiny": model.config.subnets["tiny"]}
    run = train_family(model, arguments(tmp_path), rows[:16], rows[16:], None, accuracy, data_collator=pad)
    run.save(tmp_path / "saved")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert loaded.config.subnets == model.config.subnets
    assert json.loads((tmp_path / "saved" / "metrics.json").read_text()) == run.scores
    written = json.loads((tmp_path / "saved" / "training_log.json").read_text())
    assert written["outcome"] == {**run.outcome.to_dict(), "sizes": ["supernet", "tiny"], "teachers": []}
    assert written["outcome"]["steps"] == 2
    assert written["log"] == run.trainer.state.log_history
    assert list(run.scores) == ["supernet", "tiny"]
    assert read_metrics(tmp_path / "saved", ["tiny", "other"]) == {"tiny": run.scores["tiny"]}


def test_metrics_of_a_folder_without_them_are_none_and_a_bad_file_is_an_error(tmp_path):
    assert read_metrics(tmp_path, ["tiny"]) == {}
    with pytest.raises(FileNotFoundError):
        read_metrics(tmp_path / "missing.json", ["tiny"])
    for text, message in (("{", "is not valid JSON"), ("[1]", "should hold metrics by size")):
        (tmp_path / "metrics.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_metrics(tmp_path, ["tiny"])


def test_metrics_of_a_size_are_its_own_although_its_name_begins_another(tmp_path):
    rows = make_learnable_rows(24)
    model = make_fresh_model()
    model.config.subnets = {"tiny": model.config.subnets["tiny"], "tiny_v2": model.config.subnets["small"]}
    args = arguments(tmp_path, max_steps=1)
    run = train_family(model, args, rows[:16], rows[16:], None, accuracy, data_collator=pad, rank_examples=0)
    assert {name: set(metrics) for name, metrics in run.scores.items()} == dict.fromkeys(
        ["supernet", "tiny_v2", "tiny"], {"accuracy"}
    )
    with pytest.raises(TypeError, match="data are a dict of 'dev'. Give one dataset"):
        run.evaluate({"dev": rows[16:]})


def test_several_evaluation_datasets_are_an_error_before_any_work(tmp_path):
    rows, phases = make_learnable_rows(8), []
    with pytest.raises(TypeError, match="data are a dict of 'dev', 'test'. Give one dataset.*run.evaluate"):
        train_family(
            make_fresh_model(), arguments(tmp_path), rows, {"dev": rows, "test": rows}, on_phase=phases.append
        )
    assert phases == []


def test_adapters_that_cannot_be_ranked_are_an_error_before_any_work(tmp_path):
    peft = pytest.importorskip("peft")
    model, phases, rows = make_fresh_model(), [], make_learnable_rows(8)
    model.config.subnets = {"half": {"layers": [0, 3]}}
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", target_modules=["q_proj"], r=2))
    args = arguments(tmp_path, max_steps=1)
    with pytest.raises(TypeError, match="layers.0.attention.q_proj is a peft"):
        train_family(model, args, rows, data_collator=pad, finetune_epochs=1, on_phase=phases.append)
    assert phases == []
    run = train_family(model, args, rows, data_collator=pad, rank_examples=0)
    assert list(run.seconds) == ["co-train"]


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"teacher_cache_dir": "cache", "hidden_weight": 0.0}, ValueError, "no column 'example_id'"),
        ({"gradient_conflicts": "upgrad"}, ImportError, "gradient_conflicts='upgrad' needs `torchjd`"),
    ],
    ids=["ids", "torchjd"],
)
def test_what_stops_the_common_training_is_an_error_before_any_work(tmp_path, monkeypatch, settings, kind, message):
    monkeypatch.setitem(sys.modules, "torchjd", None)
    rows, phases = make_learnable_rows(8), []
    args = arguments(tmp_path, **settings)
    with pytest.raises(kind, match=message):
        train_family(
            make_fresh_model(),
            args,
            rows,
            data_collator=pad,
            teachers=[make_model("classification")],
            finetune_epochs=1,
            on_phase=phases.append,
        )
    assert phases == []


def test_a_cache_of_other_data_is_an_error_before_any_work(tmp_path):
    rows, phases = datasets.Dataset.from_list(make_numbered_rows(16)), []
    args = arguments(tmp_path, teacher_cache_dir=str(tmp_path / "cache"), hidden_weight=0.0, max_steps=1)
    keywords = {"teachers": [make_model("classification")], "data_collator": collate, "finetune_epochs": 0.5}
    run = train_family(make_fresh_model(), args, rows.select(range(8)), **keywords, rank_examples=8)
    assert list(run.seconds) == ["fine-tune", "rank", "co-train"]
    with pytest.raises(ValueError, match="room for 8 examples"):
        train_family(make_fresh_model(), args, rows, **keywords, on_phase=phases.append)
    assert phases == []


def test_data_without_a_length_cannot_be_fine_tuned_by_epochs(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from make_learnable_rows(16)

    args = arguments(tmp_path / "out", max_steps=1)
    with pytest.raises(ValueError, match="finetune_epochs=1, but a Stream has no length.*finetune_epochs=0"):
        train_family(make_fresh_model(), args, Stream(), data_collator=pad, finetune_epochs=1)
    assert not (tmp_path / "out").exists()
    run = train_family(make_fresh_model(), args, Stream(), data_collator=pad, rank_examples=0)
    assert list(run.seconds) == ["co-train"]


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf")])
@pytest.mark.parametrize("setting", ["finetune_epochs", "rank_examples"])
def test_an_impossible_amount_is_an_error_before_any_work(tmp_path, setting, amount):
    with pytest.raises(ValueError, match=f"{setting}={amount} is negative or not finite"):
        train_family(make_fresh_model(), arguments(tmp_path), make_learnable_rows(8), **{setting: amount})
