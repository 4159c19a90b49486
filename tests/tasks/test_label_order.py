"""Labels in another order than the task's are found by their names, or by predictions that are too wrong."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BertConfig

from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.label_order import check_label_order, suspect_label_order

MNLI = find_task("glue", "mnli")
MIXED_UP = ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")


def config_with(names):
    return BertConfig(id2label=dict(enumerate(names)), label2id={name: i for i, name in enumerate(names)})


@pytest.mark.parametrize(
    ("task", "names"),
    [
        (MNLI, ("entailment", "neutral", "contradiction")),
        (MNLI, ("Entailment", "NEUTRAL", "contradiction")),
        (MNLI, ("LABEL_0", "LABEL_1", "LABEL_2")),
        (MNLI, ("LABEL_0", "LABEL_1")),
        (MNLI, ("positive", "negative", "neutral")),
        (find_task("glue", "rte"), ("ENTAILMENT", "not entailment")),
        (find_task("glue", "rte"), ("entailment", "Not-Entailment")),
        (find_task("glue", "stsb"), ("LABEL_0",)),
    ],
)
def test_the_same_order_and_names_that_say_nothing_pass(task, names):
    check_label_order(task, config_with(names))


def test_another_order_is_shown_with_the_rows_that_mend_the_head():
    with pytest.raises(ValueError) as error:
        check_label_order(MNLI, config_with(MIXED_UP))
    message = str(error.value)
    assert "labels are CONTRADICTION, ENTAILMENT, NEUTRAL" in message
    assert "those of mnli are entailment, neutral, contradiction" in message
    assert "rows [1, 2, 0] of the last layer's weight and bias" in message
    head = torch.nn.Linear(4, 3)
    hidden = torch.randn(5, 4)
    mended = torch.nn.functional.linear(hidden, head.weight[[1, 2, 0]], head.bias[[1, 2, 0]])
    named = [MIXED_UP[i].lower() for i in head(hidden).argmax(-1)]
    assert [MNLI.label_names[i] for i in mended.argmax(-1)] == named


@pytest.mark.parametrize("names", [("not-entailment", "entailment"), ("Not Entailment", "ENTAILMENT")])
def test_two_labels_the_wrong_way_round_are_found(names):
    with pytest.raises(ValueError, match=r"those of qnli are entailment, not_entailment.*rows \[1, 0\]"):
        check_label_order(find_task("glue", "qnli"), config_with(names))


def test_a_task_with_the_labels_of_another_in_its_own_order():
    names = find_task("super_glue", "cb").label_names
    check_label_order(replace(MNLI, label_names=names), config_with(names))
    with pytest.raises(ValueError, match=r"rows \[0, 2, 1\]"):
        check_label_order(MNLI, config_with(names))


def predictions(labels, accuracy, permutation, rng):
    """What a model of this accuracy gives that means `permutation[i]` by its number i."""
    num_labels = len(permutation)
    wrong = (labels + rng.integers(1, num_labels, len(labels))) % num_labels
    meant = np.where(rng.random(len(labels)) < accuracy, labels, wrong)
    return np.argsort(permutation)[meant]


@pytest.mark.parametrize("permutation", [(1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 0)])
def test_the_permutation_of_a_good_model_is_found(permutation):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, len(permutation), 1000)
    given = predictions(labels, 0.85, permutation, rng)
    found = suspect_label_order(labels, given, len(permutation))
    assert found == permutation
    assert (np.asarray(found)[given] == labels).mean() == pytest.approx(0.85, abs=0.03)


def test_ordinary_models_are_not_suspected():
    rng = np.random.default_rng(1)
    for rows in (56, 277, 1000):
        for shares in ((0.5, 0.5), (0.7, 0.3), (1 / 3, 1 / 3, 1 / 3), (0.42, 0.5, 0.08)):
            labels = rng.choice(len(shares), rows, p=shares)
            for _ in range(50):
                by_chance = rng.integers(0, len(shares), rows)
                assert suspect_label_order(labels, by_chance, len(shares)) is None
            for constant in range(len(shares)):
                assert suspect_label_order(labels, np.full(rows, constant), len(shares)) is None
            good = predictions(labels, 0.8, tuple(range(len(shares))), rng)
            assert suspect_label_order(labels, good, len(shares)) is None
