"""Bad input fails when the trainer is made, with the value and the remedy, and leaves no output folder."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from hf_elastic import ElasticModel, ElasticTrainer, SubnetConfig
from tests.conftest import TINY
from tests.training.cases import accuracy, make_model, make_rows, make_trainer


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


def test_another_kind_of_model(output):
    with pytest.raises(TypeError, match="BertForSequenceClassification.*hf_elastic.convert"):
        make_trainer(output, model=BertForSequenceClassification(BertConfig(**TINY)))
    assert not output.exists()


def test_model_without_a_head(output, tiny_config):
    with pytest.raises(TypeError, match="ElasticModel has no head.*ElasticForSequenceClassification"):
        make_trainer(output, model=ElasticModel(tiny_config))


def test_model_without_subnets(output):
    model = make_model("classification")
    model.config.subnets = {}
    with pytest.raises(ValueError, match="subnets is empty.*SubnetConfig.scaled"):
        make_trainer(output, model=model)
    assert not output.exists()


def test_arguments_of_the_parent(output):
    with pytest.raises(TypeError, match="args is a TrainingArguments.*ElasticTrainingArguments"):
        ElasticTrainer(make_model("classification"), TrainingArguments(str(output), report_to="none"))


def test_weights_of_unknown_subnets(output):
    with pytest.raises(ValueError, match="'medium'.*large, base, small, tiny"):
        make_trainer(output, settings={"subnet_weights": {"medium": 1.0}})


def test_weights_that_leave_nothing(output):
    weights = dict.fromkeys(["large", "base", "small", "tiny"], 0.0)
    with pytest.raises(ValueError, match="0 for all subnets"):
        make_trainer(output, settings={"subnet_weights": weights})


def test_resuming_with_other_subnets(tmp_path):
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    make_trainer(tmp_path, settings=settings).train()
    model = make_model("classification")
    model.config.subnets["small"] = SubnetConfig(layers=(0, 3))
    checkpoint = str(tmp_path / "checkpoint-1")
    with pytest.raises(ValueError, match=r"was trained with small=.*and the model has small=\{'layers': \[0, 3\]\}"):
        make_trainer(tmp_path, model=model, settings=settings).train(resume_from_checkpoint=checkpoint)
    del model.config.subnets["small"]
    with pytest.raises(ValueError, match=r"small=None \(None is no such size\). Resume with the same"):
        make_trainer(tmp_path, model=model, settings=settings).train(resume_from_checkpoint=checkpoint)


@pytest.mark.parametrize("empty", [[], Dataset.from_dict({"input_ids": [], "labels": []})])
def test_empty_training_data(output, empty):
    with pytest.raises(ValueError, match="train_dataset is empty"):
        make_trainer(output, train_dataset=empty)
    assert not output.exists()


@pytest.mark.parametrize("column", ["label", "labels"])
@pytest.mark.parametrize("bad", [3, -1])
@pytest.mark.parametrize("as_dataset", [list, Dataset.from_list])
def test_labels_that_do_not_exist(output, column, bad, as_dataset):
    rows = [{"input_ids": [1, 2], column: label} for label in (0, 2, bad, -100)]
    with pytest.raises(ValueError, match=f"train_dataset has label {bad}, .*num_labels=3: labels go from 0 to 2"):
        make_trainer(output, train_dataset=as_dataset(rows))
    with pytest.raises(ValueError, match=f"test has label {bad}"):
        make_trainer(output, eval_dataset={"dev": make_rows("classification", 2), "test": as_dataset(rows)})


def test_labels_of_a_shuffled_and_formatted_dataset(output):
    dataset = Dataset.from_list([{"input_ids": [1, 2], "labels": label} for label in (0, 1, 7)])
    with pytest.raises(ValueError, match="label 7"):
        make_trainer(output, train_dataset=dataset.shuffle(seed=0).with_format("torch"))
    make_trainer(output, train_dataset=dataset.select([0, 1]))


def test_labels_of_tokens(output):
    rows = [{"input_ids": [1, 2, 3], "labels": [-100, 0, label]} for label in (4, 5)]
    with pytest.raises(ValueError, match="label 5, .*num_labels=5"):
        make_trainer(output, "token_classification", train_dataset=Dataset.from_list(rows))
    make_trainer(output, "token_classification", train_dataset=[*rows[:1], {"input_ids": [1], "labels": []}])


@pytest.mark.parametrize("case", ["regression", "multi_label", "masked_lm", "question_answering", "multiple_choice"])
def test_labels_that_are_no_classes_are_left_alone(output, case):
    make_trainer(output, case)


def test_integers_are_fine_for_regression(output):
    make_trainer(output, "regression", train_dataset=[{"input_ids": [1, 2], "labels": 5}])


class Rows(torch.utils.data.Dataset):
    """A dataset that must not be read before the training."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise AssertionError("read too early")


def test_other_datasets_are_not_read(output):
    make_trainer(output, train_dataset=Rows())


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("q_proj", "'base' has fewer heads in layer 0, but model.layers.0.attention.q_proj is a peft.*run in part"),
        ("down_proj", "'base' has fewer neurons in layer 0, but model.layers.0.mlp.down_proj is a peft.*unload"),
    ],
)
def test_adapters_of_a_projection_that_a_size_runs_in_part(output, target, message):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=[target], r=2)
    with pytest.raises(ValueError, match=message):
        make_trainer(output, model=peft.get_peft_model(make_model("classification"), config))
    assert not output.exists()


IDS = [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("case", "labels", "wanted"),
    [("classification", {"topic": [0, 1]}, "labels"), ("question_answering", {"answers": IDS}, "start_positions")],
)
def test_training_data_without_labels(output, case, labels, wanted):
    dataset = Dataset.from_dict({"input_ids": IDS, **labels})
    with pytest.raises(ValueError, match=f"columns are input_ids, {next(iter(labels))}. Rename .*'{wanted}'"):
        make_trainer(output, case, train_dataset=dataset)
    assert not output.exists()
    # Then the collator gets all columns, and may make labels of any.
    make_trainer(output, case, {"remove_unused_columns": False}, train_dataset=dataset)


@pytest.mark.parametrize("column", ["label", "labels"])
def test_labels_that_are_text(output, column):
    dataset = Dataset.from_dict({"input_ids": IDS, column: ["sport", "tech"]})
    with pytest.raises(ValueError, match=f"Column '{column}'.*such as 'sport'.*class_encode_column"):
        make_trainer(output, train_dataset=dataset)


@pytest.mark.parametrize("column", ["label", "labels", "label_ids", "klass"])
def test_columns_that_are_labels(output, column):
    dataset = Dataset.from_dict({"input_ids": IDS, column: [0, 1]})
    make_trainer(output, settings={"label_names": ["klass"]}, train_dataset=dataset)


def test_collators_mask_tokens_as_labels(output):
    make_trainer(output, "masked_lm", train_dataset=Dataset.from_dict({"input_ids": IDS}))


def best(metric: str) -> dict:
    return {"metric_for_best_model": metric}


@pytest.mark.parametrize("metric", ["eval_medium_loss", "smal_loss"])
def test_metric_of_an_unknown_subnet(output, metric):
    with pytest.raises(ValueError, match=f"'{metric}'.*large_loss.*mean_loss"):
        make_trainer(output, settings=best(metric))


@pytest.mark.parametrize("metric", ["loss", "eval_loss", "eval_tiny_loss", "mean_loss"])
def test_metric_of_a_known_subnet(output, metric):
    make_trainer(output, settings=best(metric))


def test_metric_of_a_misspelt_subnet(output):
    message = "'eval_smal_accuracy' starts with the name of no subnet.*'small'.*Write it as small_accuracy"
    with pytest.raises(ValueError, match=message):
        make_trainer(output, compute_metrics=accuracy, settings=best("eval_smal_accuracy"))


@pytest.mark.parametrize("metric", ["eval_small_accuracy", "accuracy", "matthews_correlation", "tiny", "macro_f1"])
def test_metric_that_may_be_meant(output, metric):
    model = make_model("classification")
    model.config.subnets["micro"] = model.config.subnets["base"]
    make_trainer(output, model=model, compute_metrics=accuracy, settings=best(metric))
