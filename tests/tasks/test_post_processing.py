"""What is fitted, what it does to the answers, and its way to disk and back."""

import numpy as np
import pytest
from scipy.special import expit, softmax

from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.input_formats import answers_of
from hf_elastic.tasks.post_processing import PostProcessing

from .benchmark_rows import rows_of


def held_out(labels=2, rows=200, seed=0):
    """Logits that are too sure of themselves, and labels of which most are 0."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(labels, size=rows) * (rng.random(rows) < 0.6)
    logits = rng.normal(size=(rows, labels))
    logits[np.arange(rows), ids] += 1
    return logits * 4, ids


def test_the_defaults_do_nothing():
    logits = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(PostProcessing().apply(logits), logits)


def test_the_answers_are_those_beyond_the_threshold():
    logits = np.random.default_rng(0).normal(size=(50, 2)) * 2
    probabilities = expit((logits[:, 1] - logits[:, 0]) / 1.5)
    for threshold in (0.1, 0.35, 0.5, 0.8):
        applied = PostProcessing(temperature=1.5, threshold=threshold).apply(logits)
        answers = answers_of(find_task("glue", "cola").input_format, [{}] * 50, [1] * 50, applied)
        assert answers == (probabilities > threshold).astype(int).tolist()
        assert 0 < sum(answers) < 50


def test_a_temperature_changes_probabilities_and_no_answer():
    logits, labels = held_out(labels=3)
    post_processing = PostProcessing.fit(find_task("glue", "mnli"), logits, labels)
    assert post_processing.temperature > 1.5
    assert (post_processing.threshold, post_processing.label_range) == (None, None)
    applied = post_processing.apply(logits)
    np.testing.assert_array_equal(applied.argmax(-1), logits.argmax(-1))
    # Calibrated: as sure on average as it is often right.
    accuracy = (logits.argmax(-1) == labels).mean()
    assert softmax(applied, axis=-1).max(-1).mean() == pytest.approx(accuracy, abs=0.05)
    assert softmax(logits, axis=-1).max(-1).mean() > accuracy + 0.1


def test_a_threshold_is_fitted_to_calibrated_probabilities():
    task, (logits, labels) = find_task("glue", "cola"), held_out()
    post_processing = PostProcessing.fit(task, logits, labels)
    assert post_processing.threshold not in (None, 0.5)
    matthews = [np.corrcoef(found.argmax(-1), labels)[0, 1] for found in (logits, post_processing.apply(logits))]
    assert matthews[1] > matthews[0]


@pytest.mark.parametrize(("benchmark", "name"), [("glue", "rte"), ("super_glue", "copa"), ("super_glue", "record")])
def test_tasks_without_a_threshold(benchmark, name):
    post_processing = PostProcessing.fit(find_task(benchmark, name), *held_out())
    assert post_processing.threshold is None and post_processing.temperature > 1


def test_the_range_of_a_regression():
    task = find_task("glue", "stsb")
    post_processing = PostProcessing.fit(task, np.array([[7.0], [1.0]]), np.array([5.0, 0.5]))
    assert post_processing == PostProcessing(label_range=(0.0, 5.0))
    applied = post_processing.apply(np.array([[-0.5], [2.5], [5.5]], dtype=np.float32))
    assert answers_of(task.input_format, rows_of("glue", "stsb")[:3], [1] * 3, applied) == [0.0, 2.5, 5.0]


@pytest.mark.parametrize(
    "post_processing",
    [PostProcessing(), PostProcessing(1.7, 0.3), PostProcessing(label_range=(0.0, 5.0))],
)
def test_json(post_processing):
    assert PostProcessing.from_json(post_processing.to_json()) == post_processing


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0 has to be above 0"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"threshold": 1.0}, "threshold=1.0 has to be between 0 and 1"),
        ({"label_range": (5.0, 0.0)}, r"label_range=\(5.0, 0.0\)"),
    ],
)
def test_values_out_of_range(values, message):
    with pytest.raises(ValueError, match=message):
        PostProcessing(**values)


def test_rows_that_nothing_can_be_fitted_to():
    task = find_task("glue", "rte")
    with pytest.raises(ValueError, match="0 rows of logits and 0 labels"):
        PostProcessing.fit(task, np.zeros((0, 2)), np.zeros(0, dtype=int))
    with pytest.raises(ValueError, match="3 rows of logits and 2 labels"):
        PostProcessing.fit(task, np.zeros((3, 2)), np.array([0, 1]))
    with pytest.raises(ValueError, match=r"Labels \[-1\] are none of the 2 label ids of rte"):
        PostProcessing.fit(task, np.zeros((3, 2)), np.array([0, -1, -1]))


def test_a_threshold_needs_two_labels():
    with pytest.raises(ValueError, match="threshold=0.4 needs two labels, but the logits are of 3"):
        PostProcessing(threshold=0.4).apply(np.zeros((2, 3)))
