"""The bars of a training in all sizes: the loss behind them, no log above them, as long as the passes."""

import re

import pytest
from transformers.utils import logging

from hf_elastic import ElasticTrainer, ElasticTrainingArguments
from hf_elastic.training.progress import LossProgress, show_loss_only, without_inner_bars

from .cases import make_model, make_rows


@pytest.fixture
def trainer(tmp_path):
    rows = [{**row, "input_ids": row["input_ids"][:4]} for row in make_rows("classification", 16)]
    args = ElasticTrainingArguments(str(tmp_path), max_steps=2, logging_steps=1, report_to="none", save_strategy="no")
    return ElasticTrainer(make_model("classification"), args, train_dataset=rows, eval_dataset=rows)


def test_only_the_loss_is_shown(trainer, capsys):
    show_loss_only(trainer, "All sizes")
    trainer.train()
    shown = capsys.readouterr()
    bars = [line for line in re.split(r"[\r\n]+", shown.err) if "| " in line and "/2 " in line]
    assert bars and all(bar.startswith("All sizes: ") for bar in bars)
    assert "loss=" in shown.err
    assert "loss_tiny" not in shown.out + shown.err


def test_the_evaluation_bar_covers_the_passes_of_all_sizes(trainer, capsys):
    show_loss_only(trainer, "All sizes")
    trainer.evaluate()
    assert "8/8" in capsys.readouterr().err


def test_so_does_the_bar_that_a_trainer_has_by_itself(trainer, capsys):
    trainer.evaluate()
    shown = capsys.readouterr().err
    assert "8/8" in shown
    assert re.search(r"Evaluation: +12%.*1/8 \[00:00<\?, \?it/s\]", shown)  # one step tells no speed
    trainer.predict(trainer.eval_dataset)
    assert "2/2" in capsys.readouterr().err


def test_a_trainer_without_bars_gets_none(trainer):
    show_loss_only(trainer, "once")
    bars = [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, LossProgress)]
    assert len(bars) == 1
    trainer.remove_callback(LossProgress)
    show_loss_only(trainer, "again")
    assert not [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, LossProgress)]


def test_bars_of_saving_are_left_out_within_another(tmp_path, capsys):
    model = make_model("classification")
    with without_inner_bars():
        model.save_pretrained(tmp_path)
    assert "shards" not in capsys.readouterr().err
    assert logging.is_progress_bar_enabled()
