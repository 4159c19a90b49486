"""Predictions come back from disk as they were, answer as the model did, and join into ensembles."""

import json

import numpy as np
import pytest
from scipy.special import softmax

from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.input_formats import answers_of
from hf_elastic.tasks.predictions import Predictions, mean_probabilities
from hf_elastic.tasks.scoring import score
from hf_elastic.tasks.submission import prediction_lines

from .benchmark_rows import LABEL_NAMES, dataset_of, rows_of, splits_of
from .saved_runs import predictions_of

EVERY_SPLIT = [(*key, split) for key in LABEL_NAMES for split in splits_of(*key)]


@pytest.mark.parametrize(("benchmark", "name", "split"), EVERY_SPLIT)
def test_what_is_loaded_is_what_was_saved(tmp_path, benchmark, name, split):
    saved = predictions_of(benchmark, name, split)
    saved.save(tmp_path / "predictions.npz")
    loaded = Predictions.load(tmp_path / "predictions.npz")
    assert (loaded.benchmark, loaded.task, loaded.split) == (benchmark, name, split)
    assert (loaded.rows, loaded.counts, loaded.labels) == (saved.rows, saved.counts, saved.labels)
    np.testing.assert_array_equal(loaded.logits, saved.logits, strict=True)


@pytest.mark.parametrize(("benchmark", "name", "split"), EVERY_SPLIT)
def test_answers_scores_and_files_need_no_more_than_what_is_kept(tmp_path, benchmark, name, split):
    task, rows = find_task(benchmark, name), rows_of(benchmark, name, split)
    predictions = predictions_of(benchmark, name, split)
    answers = answers_of(task.input_format, rows, predictions.counts, predictions.logits)
    assert predictions.answers == answers
    assert predictions.idx == [row["idx"] for row in rows]
    if split in task.test_splits:
        ours = prediction_lines(task, split, predictions.rows, predictions.answers)
        assert ours == prediction_lines(task, split, rows, answers)
    if predictions.labels is not None:
        assert score(task, predictions.labelled_rows, answers) == score(task, rows, answers)
    else:
        with pytest.raises(ValueError, match=f"The labels of '{split}' of {name} are hidden"):
            predictions.labelled_rows  # noqa: B018


def test_labels():
    assert predictions_of("glue", "cola", "validation").labels == [1, 0, 1, 0, 1]
    assert predictions_of("glue", "stsb", "train").labels == [5.0, 1.75, 0.0, 4.6, 2.2]
    assert predictions_of("super_glue", "record", "train").labels[1:3] == [["Paris"], ["Karl Huber", "Huber"]]
    for benchmark, name in [("glue", "cola"), ("glue", "stsb"), ("super_glue", "record")]:
        assert predictions_of(benchmark, name, "test").labels is None
    assert predictions_of("super_glue", "axb", "test").labels == [0, 1, 0, 1]
    no_column = [{"idx": 0, "premise": "Rain.", "hypothesis": "Rain."}]
    assert Predictions.of(find_task("glue", "mnli"), "test", no_column, [1], np.zeros((1, 3))).labels is None


def test_some_hidden_labels():
    rows = [{"idx": 3, "label": 1}, {"idx": 8, "label": -1}]
    with pytest.raises(ValueError, match="Row 1 of rte has no label, but others have"):
        Predictions.of(find_task("glue", "rte"), "validation", rows, [1, 1], np.zeros((2, 2)))


def test_a_data_set_gives_rows(tmp_path):
    task, rows = find_task("super_glue", "multirc"), dataset_of("super_glue", "multirc", "validation")
    predictions = Predictions.of(task, "validation", rows, [1] * len(rows), np.eye(2)[rows["label"]])
    predictions.save(tmp_path / "new" / "multirc.npz")
    assert Predictions.load(tmp_path / "new" / "multirc.npz").answers == predictions.labels == rows["label"][:]


def test_numbers_of_numpy_are_saved(tmp_path):
    rows = [{"idx": np.int32(4), "label": np.int64(1)}, {"idx": np.int32(2), "label": np.int64(0)}]
    predictions = Predictions.of(find_task("glue", "rte"), "train", rows, np.array([1, 1]), np.zeros((2, 2)))
    predictions.save(tmp_path / "rte.npz")
    assert Predictions.load(tmp_path / "rte.npz").idx == [4, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": np.zeros((5, 3))}, r"logits of shape \(5, 3\) are not \[examples, 2\]"),
        ({"logits": np.zeros(5)}, r"logits of shape \(5,\) are not"),
        ({"logits": np.zeros((4, 2))}, "4 rows of logits for 5 examples, and 5 rows, 5 counts, 5 labels"),
        ({"counts": [1, 1, 1, 2]}, "5 rows of logits for 5 examples, and 5 rows, 4 counts, 5 labels"),
        ({"labels": [1, 0]}, "5 rows, 5 counts, 2 labels: predict the whole split"),
        ({"rows": []}, "0 rows, 5 counts, 5 labels"),
        ({"logits": np.full((5, 2), np.nan)}, "no number, so the training has diverged"),
        ({"task": "koala"}, "glue has no task 'koala'"),
    ],
)
def test_parts_that_do_not_fit(changes, message):
    parts = vars(predictions_of("glue", "cola", "validation"))
    with pytest.raises(ValueError, match=message):
        Predictions(**{**parts, **changes})


def test_rows_without_an_index_are_known_by_their_number():
    rows = [{"sentence": "Rain.", "label": 1}, {"sentence": "Sun rain.", "label": 0}]
    assert Predictions.of(find_task("glue", "cola"), "train", rows, [1, 1], np.zeros((2, 2))).idx == [0, 1]


def test_files_that_hold_no_predictions(tmp_path):
    path = tmp_path / "cola.npz"
    with pytest.raises(FileNotFoundError):
        Predictions.load(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="cola.npz holds no predictions, or is damaged"):
        Predictions.load(path)
    np.savez(path, logits=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="cola.npz holds no predictions, or is damaged"):
        Predictions.load(path)


def test_a_damaged_file(tmp_path):
    path = tmp_path / "cola.npz"
    predictions_of("glue", "cola", "validation").save(path)
    data = bytearray(path.read_bytes())
    start = data.index(b"parts.npy")
    data[start + 60 : start + 100] = bytes(40)
    path.write_bytes(data)
    with pytest.raises(ValueError, match="cola.npz holds no predictions, or is damaged"):
        Predictions.load(path)


def test_a_file_of_another_version(tmp_path):
    text = json.dumps({"version": 99}).encode()
    np.savez(tmp_path / "cola.npz", logits=np.zeros((1, 2)), parts=np.frombuffer(text, dtype=np.uint8))
    with pytest.raises(ValueError, match="is of version 99, and not 2"):
        Predictions.load(tmp_path / "cola.npz")


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "cola.npz", logits=np.array([print]), parts=np.array([{}]))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        Predictions.load(tmp_path / "cola.npz")


@pytest.mark.parametrize(("benchmark", "name"), [("glue", "mnli"), ("super_glue", "copa"), ("super_glue", "record")])
def test_the_mean_of_probabilities(benchmark, name):
    members = [predictions_of(benchmark, name, "train", seed, scale=3) for seed in range(3)]
    joined = mean_probabilities(members)
    expected = np.mean([softmax(member.logits.astype(float), axis=-1) for member in members], axis=0)
    np.testing.assert_allclose(softmax(joined.logits, axis=-1), expected)
    np.testing.assert_allclose(joined.logits, np.log(expected))
    assert (joined.rows, joined.labels, joined.split) == (members[0].rows, members[0].labels, "train")


def test_a_sure_member_outvotes_two_that_are_unsure():
    sure, unsure = predictions_of("glue", "rte", "test"), predictions_of("glue", "rte", "test")
    sure.logits[:] = [9.0, 0.0]
    unsure.logits[:] = [0.0, 0.4]
    assert mean_probabilities([unsure, sure, unsure]).answers == [0, 0, 0, 0]


def test_the_ensemble_of_entities_answers_with_the_likeliest_on_average():
    task, rows = find_task("super_glue", "record"), rows_of("super_glue", "record")[1:2]
    right = np.array([[0.9, 0.2, 0.6, 0.1, 0.1, 0.1], [0.1, 0.2, 0.6, 0.1, 0.1, 0.1]])
    members = [Predictions.of(task, "train", rows, [6], np.log(np.stack([1 - p, p], axis=-1))) for p in right]
    assert [member.answers for member in members] == [["Maria Lopez"], ["Paris"]]
    assert mean_probabilities(members).answers == ["Paris"]


def test_the_mean_of_a_regression():
    members = [predictions_of("glue", "stsb", "validation", seed) for seed in range(4)]
    expected = np.mean([member.answers for member in members], axis=0)
    np.testing.assert_allclose(mean_probabilities(members).answers, expected, rtol=1e-6)


def test_the_mean_with_weights():
    for name in ("stsb", "mnli"):
        members = [predictions_of("glue", name, "train", seed) for seed in range(2)]
        values = [of.logits if name == "stsb" else softmax(of.logits, axis=-1) for of in members]
        joined = mean_probabilities(members, weights=[3.0, 1.0]).logits
        expected = np.average(values, axis=0, weights=[0.75, 0.25])
        np.testing.assert_allclose(joined if name == "stsb" else np.exp(joined), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "1 weights for 2 members of the ensemble"),
        ([1.0, 0.0], "weight=0.0 of a member of the ensemble has to be above 0"),
        ([-1.0, 2.0], "weight=-1.0"),
        ([1.0, np.inf], "weight=inf"),
        ([1.0, np.nan], "weight=nan"),
    ],
)
def test_weights_that_do_not_fit(weights, message):
    member = predictions_of("glue", "rte", "test")
    with pytest.raises(ValueError, match=message):
        mean_probabilities([member, member], weights)


def test_one_that_is_certain_stays_finite():
    certain = predictions_of("glue", "rte", "test", scale=0)
    certain.logits[:, 1] = 1e4
    assert mean_probabilities([certain, certain]).answers == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (("glue", "wnli", "validation"), "1 and 3 of the ensemble differ in task: 'rte' and 'wnli'"),
        (("super_glue", "rte", "validation"), "differ in benchmark: 'glue' and 'super_glue'"),
        (("glue", "rte", "train"), "differ in split: 'validation' and 'train'"),
    ],
)
def test_ensembles_of_different_things(other, message):
    member = predictions_of("glue", "rte", "validation")
    with pytest.raises(ValueError, match=message):
        mean_probabilities([member, member, predictions_of(*other)])


def test_ensembles_of_different_rows():
    task, rows = find_task("glue", "rte"), rows_of("glue", "rte")
    member = Predictions.of(task, "train", rows, [1] * 4, np.zeros((4, 2)))
    other = Predictions.of(task, "train", rows[::-1], [1] * 4, np.zeros((4, 2)))
    with pytest.raises(ValueError, match="differ in idx. Predict the same rows in the same order"):
        mean_probabilities([member, other])
    for row in rows:
        row["label"] = 1 - row["label"]
    with pytest.raises(ValueError, match="differ in labels"):
        mean_probabilities([member, Predictions.of(task, "train", rows, [1] * 4, np.zeros((4, 2)))])
    with pytest.raises(ValueError, match="at least one model"):
        mean_probabilities([])
