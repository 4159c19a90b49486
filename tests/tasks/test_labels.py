"""Labels as people write them: names, numbers, lists; and each way in which they do not fit."""

import pytest
from datasets import ClassLabel, List, Value

from hf_elastic.tasks.labels import LabelColumn, Labels, infer_labels


def column(values, feature):
    return LabelColumn(values, feature, "label")


def encode(values, feature, **known):
    labels = infer_labels(column(values, feature), **known)
    return labels.names, labels.encode(column(values, feature), "train")


def test_strings_are_sorted_into_ids():
    assert encode(["b", "a", "b"], Value("string")) == (("a", "b"), [1, 0, 1])


def test_given_names_fix_the_ids():
    assert encode(["b", "a"], Value("string"), label_names=["b", "c", "a"]) == (("b", "c", "a"), [0, 2])
    assert encode([1, 0], Value("int64"), label_names=["no", "yes"]) == (("no", "yes"), [1, 0])


def test_a_class_label_gives_its_names_and_keeps_its_ids():
    feature = ClassLabel(names=["world", "art", "sport"])
    assert encode([2, 0, 0], feature) == (("world", "art", "sport"), [2, 0, 0])


def test_integers_are_ordered_as_numbers_and_need_not_start_at_zero():
    assert encode([10, 2, 1], Value("int64")) == (("1", "2", "10"), [2, 1, 0])
    assert encode([0, 2], Value("int64"), num_labels=4) == (("0", "1", "2", "3"), [0, 2])


def test_booleans_are_two_labels():
    assert encode([True, False], Value("bool")) == (("False", "True"), [1, 0])


def test_floats_are_a_regression():
    labels = infer_labels(column([0.5, 2.0], Value("float32")))
    assert (labels.problem_type, labels.num_labels) == ("regression", 1)
    assert labels.encode(column([0.5, 2.0], Value("float32")), "train") == [0.5, 2.0]


def test_integers_can_be_asked_for_as_a_regression():
    labels = infer_labels(column([1, 5], Value("int64")), problem_type="regression")
    assert labels.encode(column([1, 5], Value("int64")), "train") == [1.0, 5.0]


def test_lists_of_names_are_label_sets():
    values = [["joy", "anger"], [], ["joy"]]
    assert encode(values, List(Value("string"))) == (("anger", "joy"), [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    names = ClassLabel(names=["anger", "joy", "fear"])
    assert encode([[0, 2], [1]], List(names)) == (("anger", "joy", "fear"), [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])


def test_lists_of_numbers_are_vectors():
    assert encode([[0, 1], [1, 1]], List(Value("int64"))) == (("0", "1"), [[0.0, 1.0], [1.0, 1.0]])
    assert encode([[0, 1]], List(Value("int64")), label_names=["a", "b"]) == (("a", "b"), [[0.0, 1.0]])


@pytest.mark.parametrize(
    ("values", "feature", "known", "message"),
    [
        (["a", "b"], Value("string"), {"num_labels": 3}, "num_labels=3, but column 'label' has 2 labels: 'a', 'b'"),
        ([0, 1, 5], Value("int64"), {"num_labels": 2}, "num_labels=2, but column 'label' has 3 labels"),
        ([0, 1], ClassLabel(names=["a", "b"]), {"num_labels": 4}, "num_labels=4, but column 'label' has 2 labels"),
        ([0.5], Value("float32"), {"num_labels": 3}, "num_labels=3, but column 'label' holds numbers"),
        (["a", "a"], Value("string"), {}, "has only the label 'a'"),
        (["a", "b"], Value("string"), {"label_names": ["a", "a"]}, "repeats a name"),
        (["a", "b"], Value("string"), {"problem_type": "regress"}, "'regress' is none of single_label_classification"),
        (["a", "b"], Value("string"), {"problem_type": "multi_label_classification"}, "holds single values"),
        ([["a"]], List(Value("string")), {"problem_type": "regression"}, "holds lists"),
    ],
)
def test_labels_that_do_not_fit_what_is_known_are_an_error(values, feature, known, message):
    with pytest.raises(ValueError, match=message):
        infer_labels(column(values, feature), **known)


@pytest.mark.parametrize(
    ("labels", "values", "feature", "message"),
    [
        (Labels("single_label_classification", ("a", "b")), ["a", "c"], Value("string"), "'c' in row 1 of the test"),
        (Labels("single_label_classification", ("no", "yes")), [0, 2], Value("int64"), "'2' in row 1 of the test"),
        (Labels("single_label_classification", ("a", "b")), [-1], ClassLabel(names=["a", "b"]), "'-1' in row 0"),
        (Labels("multi_label_classification", ("a", "b")), [["a", "z"]], List(Value("string")), "'z' in row 0"),
        (Labels("multi_label_classification", ("a", "b")), [[0, 1], [1]], List(Value("int64")), "Row 1 of the test"),
        (
            Labels("multi_label_classification", ("a", "b")),
            [[0, 3]],
            List(Value("int64")),
            "0, 3. is not a vector",
        ),
        (Labels("regression"), ["1.5", "high"], Value("string"), "'high' in row 1 of the test data is not a number"),
    ],
)
def test_a_label_that_cannot_be_encoded_is_named_with_its_row(labels, values, feature, message):
    with pytest.raises(ValueError, match=message):
        labels.encode(column(values, feature), "test")


def test_a_column_of_another_kind_is_no_label():
    with pytest.raises(ValueError, match="Column 'label' holds timestamp"):
        column([], Value("timestamp[s]"))
