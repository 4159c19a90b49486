"""What does not fit a task is said before anything is tokenised or trained, and the head is the task's own."""

import pytest
from datasets import Dataset

from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.task_data import read_task
from hf_elastic.tasks.task_run import HELD_OUT
from hf_elastic.tasks.task_training import prepare_task, train_on_task

from .benchmark_rows import dataset_of
from .tiny_runs import SIZES, UNTRAINED, save_model, settings_of


def data_of(benchmark, name):
    return read_task(
        find_task(benchmark, name), {split: dataset_of(benchmark, name, split) for split in ("train", "validation")}
    )


@pytest.mark.parametrize(
    ("benchmark", "name", "architecture", "needed"),
    [
        ("glue", "rte", "BertForMultipleChoice", "ForSequenceClassification"),
        ("glue", "rte", "BertForTokenClassification", "ForSequenceClassification"),
        ("super_glue", "copa", "BertForSequenceClassification", "ForMultipleChoice"),
    ],
)
def test_a_head_of_another_kind_is_an_error_with_the_way_around_it(
    tmp_path, minilm, benchmark, name, architecture, needed
):
    save_model(tmp_path, minilm, architecture)
    with pytest.raises(ValueError, match=rf"is a {architecture}, and {name} needs {needed}.*\(--init-from\)"):
        prepare_task(tmp_path, data_of(benchmark, name), settings_of(), tmp_path, SIZES)
    prepared = prepare_task(tmp_path, data_of(benchmark, name), settings_of(), tmp_path, SIZES, new_head=True)
    assert type(prepared["model"]).__name__ == f"Elastic{needed}"


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "BertForQuestionAnswering"])
def test_a_head_without_a_classifier_is_left_out(tmp_path, minilm, architecture):
    save_model(tmp_path, minilm, architecture)
    model = prepare_task(tmp_path, data_of("glue", "rte"), settings_of(), tmp_path, SIZES)["model"]
    assert model.config.id2label == {0: "entailment", 1: "not_entailment"}


@pytest.mark.parametrize("new_head", [False, True])
def test_choices_are_the_labels_of_multiple_choice(source, tmp_path, new_head):
    model = prepare_task(source, data_of("super_glue", "copa"), settings_of(), tmp_path, SIZES, new_head)["model"]
    assert model.config.id2label == {0: "choice1", 1: "choice2"}
    assert model.config.label2id == {"choice1": 0, "choice2": 1}
    assert model.classifier.out_features == 1


@pytest.mark.parametrize(
    ("architecture", "settings", "longest"),
    [
        ("BertModel", {"max_position_embeddings": 48}, 48),
        ("RobertaModel", {"max_position_embeddings": 50, "pad_token_id": 1}, 48),
    ],
)
def test_a_length_that_the_model_has_no_positions_for_is_an_error(tmp_path, minilm, architecture, settings, longest):
    save_model(tmp_path, minilm, architecture, max_tokens=512, **settings)
    rte = data_of("glue", "rte")
    nothing = rte.replaced(train=rte.train.select([]))  # which could not be tokenised
    with pytest.raises(ValueError, match=f"max_length={longest + 1}: the model takes up to {longest} tokens"):
        prepare_task(tmp_path, nothing, settings_of(max_length=longest + 1), tmp_path, SIZES)
    long = Dataset.from_list([{"sentence1": "word " * 99, "sentence2": "word", "label": label} for label in (0, 1)])
    rows = read_task(find_task("glue", "rte"), {"train": long, "validation": long})
    prepared = prepare_task(tmp_path, rows, settings_of(max_length=longest), tmp_path, SIZES)
    batch = prepared["data_collator"]([prepared["train_dataset"][0]])
    assert batch["input_ids"].shape[1] == longest
    assert prepared["model"](**batch).logits.shape == (1, 2)


def test_of_a_regression_nothing_is_held_out(source):
    data = data_of("glue", "stsb")
    run = train_on_task(source, data, settings_of(**UNTRAINED), SIZES, held_out_fraction=0.4)
    assert HELD_OUT not in run.data.splits and len(run.data.train) == len(data.train)
    assert {processing.label_range for processing in run.post_processing.values()} == {(0.0, 5.0)}


def test_a_fraction_that_is_no_row_is_an_error(source):
    with pytest.raises(ValueError, match=r"held_out_fraction=0.01 of 4 training rows is none of them"):
        train_on_task(source, data_of("glue", "rte"), settings_of(), SIZES, held_out_fraction=0.01)
