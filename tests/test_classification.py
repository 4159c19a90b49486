"""Training a text classifier of all sizes: what comes in, what comes out, what is refused first."""

import dataclasses

import pytest
from datasets import Dataset, DatasetDict

from hf_elastic.classification import describe_training, train_text_classifier
from hf_elastic.recipes import TrainingSettings
from hf_elastic.tasks.text_classification import read
from tests.tiny_bert import save_tiny_bert

SETTINGS = TrainingSettings(
    max_length=12, batch_size=8, finetune_epochs=2, cotrain_epochs=3, learning_rate=3e-3, rank_examples=16, seed=1
)
SIZES = {"whole": {}, "half": {"depth": 0.5, "width": 0.5}}
WORDS = ["goal", "match", "vote", "party"]


@pytest.fixture
def rows():
    texts = [f"{WORDS[i % 4]} {WORDS[i % 4]} {i}" for i in range(80)]
    return Dataset.from_dict({"text": texts, "label": ["sport" if i % 4 < 2 else "politics" for i in range(80)]})


@pytest.fixture
def source(tmp_path):
    return save_tiny_bert(tmp_path / "bert", ["goal match vote party"])


def test_all_sizes_learn_a_rule_and_are_scored_on_the_test_split(rows, source):
    data = read(DatasetDict(train=rows, validation=rows.select(range(8)), test=rows.select(range(40))))
    run = train_text_classifier(source, data, SETTINGS, SIZES)
    assert list(run.metrics) == ["whole", "half"]
    assert all(metrics["accuracy"] > 0.9 for metrics in run.metrics.values()), run.metrics
    assert (len(run.trainer.eval_dataset), len(run.scored_dataset)) == (8, 40)
    assert describe_training(SETTINGS, run)["evaluation rows"] == 40
    assert {use: data.rows for use, data in run.record.data.items()} == {"train": 80, "evaluation": 8, "test": 40}
    assert run.model.config.id2label == {0: "politics", 1: "sport"}


def test_the_checkpoint_is_chosen_by_the_validation_split(rows, source):
    """Whose labels are swapped here, so that what is best there is worst on the test split."""
    test = rows.select(range(16))
    other = {"sport": "politics", "politics": "sport"}
    data = read(DatasetDict(train=rows, validation=test.map(lambda row: {"label": other[row["label"]]}), test=test))
    chosen = {
        "load_best_model_at_end": True,
        "metric_for_best_model": "whole_accuracy",
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
    }
    settings = dataclasses.replace(SETTINGS, cotrain_epochs=2, other_arguments=chosen)
    run = train_text_classifier(source, data, settings, SIZES)
    assert run.trainer.state.best_metric < 0.5
    assert run.metrics["whole"]["accuracy"] == pytest.approx(1 - run.trainer.state.best_metric)
    assert len(run.scored_dataset) == 16


def test_without_a_test_split_the_sizes_are_scored_on_the_validation_split(rows, source):
    settings = dataclasses.replace(SETTINGS, finetune_epochs=0, cotrain_epochs=0.1)
    run = train_text_classifier(
        source, read(DatasetDict(train=rows, validation=rows.select(range(8)))), settings, SIZES
    )
    assert len(run.scored_dataset) == describe_training(settings, run)["evaluation rows"] == 8
    assert run.record == run.trainer.run_record


def test_the_same_seed_gives_the_same_result(rows, source):
    settings = dataclasses.replace(SETTINGS, finetune_epochs=0.2, cotrain_epochs=0.2, train_rows=40)
    first, second = (train_text_classifier(source, read(rows), settings, SIZES).metrics for _ in range(2))
    assert first == second


def test_several_labels_per_row_are_learnt_too(source):
    texts = [" ".join(word for j, word in enumerate(WORDS[:3]) if i >> j & 1) or "party" for i in range(64)]
    labels = [[word for word in WORDS[:2] if word in text] for text in texts]
    data = read(Dataset.from_dict({"text": texts, "label": labels}))
    settings = dataclasses.replace(SETTINGS, cotrain_epochs=1, finetune_epochs=0)
    run = train_text_classifier(source, data, settings, SIZES)
    assert run.model.config.problem_type == "multi_label_classification"
    assert set(run.scores["half"]) == {"accuracy", "f1_micro", "f1_macro"}


def test_unfit_sizes_are_refused_before_the_checkpoint_is_looked_for(rows):
    with pytest.raises(ValueError, match="width=3 is no multiplier"):
        train_text_classifier("no-such-model", read(rows), SETTINGS, {"huge": {"width": 3}})


def test_arguments_that_do_not_go_together_are_refused_before_the_checkpoint_is_looked_for(rows):
    settings = dataclasses.replace(SETTINGS, other_arguments={"early_stopping_min_gain": 0.1})
    with pytest.raises(ValueError, match="early_stopping_min_gain needs evaluations"):
        train_text_classifier("no-such-model", read(rows), settings, SIZES)
