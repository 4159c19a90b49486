"""A result comes back from disk as it was, and a file that holds none says what to do."""

import json

import pytest

from hf_elastic.tasks.task_result import RESULT_NAME, OtherRows, SizeCost, TaskResult

RESULT = TaskResult(
    benchmark="glue",
    task="rte",
    seed=3,
    request={"source": "bert", "sizes": {"large": {}}, "settings": {"learning_rate": 1e-5, "train_rows": None}},
    scores={"validation": {"large": {"accuracy": 0.75}}},
    costs={"large": SizeCost(100, 80, 4000, 1.25)},
    sequence_length=128,
    rows={"train": 20, "validation": 4},
    seconds={"co-train": 1.5},
    fold=1,
    robustness={"typos": {"large": {"accuracy": 0.5}}},
    out_of_domain={"news": OtherRows("hash", 3, {"large": {"accuracy": 0.25}})},
)


def test_what_is_loaded_is_what_was_saved(tmp_path):
    assert TaskResult.load(tmp_path / "rte") is None
    RESULT.save(tmp_path / "rte")
    assert TaskResult.load(tmp_path / "rte") == RESULT
    assert [path.name for path in (tmp_path / "rte").iterdir()] == [RESULT_NAME]


def without(name):
    return {key: value for key, value in json.loads(json.dumps(vars(RESULT), default=vars)).items() if key != name}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        json.dumps({}),
        json.dumps({"version": 1}),
        json.dumps({"version": 1, **without("costs")}),
        json.dumps({"version": 1, **without("scores")}),
        json.dumps({"version": 1, **without(None), "costs": []}),
        json.dumps({"version": 1, **without(None), "costs": {"large": {"parameters": 3}}}),
        json.dumps({"version": 1, **without(None), "colour": "red"}),
    ],
)
def test_a_file_that_is_no_result_is_one_clear_error(tmp_path, content):
    (tmp_path / RESULT_NAME).write_text(content)
    with pytest.raises(ValueError, match=r"result\.json is no result of a task \(.+\): remove its folder"):
        TaskResult.load(tmp_path)


def test_bytes_that_are_no_text_are_the_same_error(tmp_path):
    (tmp_path / RESULT_NAME).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"result\.json is no result of a task"):
        TaskResult.load(tmp_path)


def test_a_result_of_another_version_is_named(tmp_path):
    (tmp_path / RESULT_NAME).write_text(json.dumps({"version": 2, "what": "ever"}))
    with pytest.raises(
        ValueError, match=r"result\.json is of version 2, and not 1: remove its folder, to train again"
    ):
        TaskResult.load(tmp_path)
