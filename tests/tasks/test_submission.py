"""Every file as the servers want it, to the letter; what they would refuse is an error before a zip is written."""

import json
import random
import stat
import zipfile

import numpy as np
import pytest

from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task
from hf_elastic.tasks.submission import prediction_lines, required_files, write_submission

from .benchmark_rows import LABEL_NAMES, real_rows, rows_of, splits_of

GLUE_FILES = {
    ("cola", "test"): ("CoLA.tsv", [1, 0, 1, 0, 0], ["1", "0", "1", "0", "0"]),
    ("sst2", "test"): ("SST-2.tsv", [1, 0, 0, 1], ["1", "0", "0", "1"]),
    ("mrpc", "test"): ("MRPC.tsv", [0, 1, 0, 0], ["0", "1", "0", "0"]),
    ("stsb", "test"): ("STS-B.tsv", [4.9996, 1.23449, -0.7, 5.31, 2], ["5.000", "1.234", "0.000", "5.000", "2.000"]),
    ("qqp", "test"): ("QQP.tsv", [1, 1, 0, 0], ["1", "1", "0", "0"]),
    ("mnli", "test_matched"): (
        "MNLI-m.tsv",
        [0, 1, 2, 2, 1, 0],
        ["entailment", "neutral", "contradiction", "contradiction", "neutral", "entailment"],
    ),
    ("mnli", "test_mismatched"): (
        "MNLI-mm.tsv",
        [2, 2, 1, 0, 0, 1],
        ["contradiction", "contradiction", "neutral", "entailment", "entailment", "neutral"],
    ),
    ("qnli", "test"): ("QNLI.tsv", [0, 1, 1, 0], ["entailment", "not_entailment", "not_entailment", "entailment"]),
    ("rte", "test"): ("RTE.tsv", [1, 1, 0, 0], ["not_entailment", "not_entailment", "entailment", "entailment"]),
    ("wnli", "test"): ("WNLI.tsv", [0, 0, 1, 1], ["0", "0", "1", "1"]),
    ("ax", "test"): (
        "AX.tsv",
        [1, 2, 0, 0, 1, 2],
        ["neutral", "contradiction", "entailment", "entailment", "neutral", "contradiction"],
    ),
}
SUPER_GLUE_FILES = {
    ("boolq", "test"): ("BoolQ.jsonl", [0, 1, 1, 0], ['"false"', '"true"', '"true"', '"false"']),
    ("cb", "test"): ("CB.jsonl", [0, 1, 2, 2], ['"entailment"', '"contradiction"', '"neutral"', '"neutral"']),
    ("copa", "test"): ("COPA.jsonl", [0, 1, 1, 0], ["0", "1", "1", "0"]),
    ("rte", "test"): (
        "RTE.jsonl",
        [0, 0, 1, 1],
        ['"entailment"', '"entailment"', '"not_entailment"', '"not_entailment"'],
    ),
    ("wic", "test"): ("WiC.jsonl", [1, 0, 0, 1], ['"true"', '"false"', '"false"', '"true"']),
    ("wsc", "test"): ("WSC.jsonl", [1, 0, 0, 1], ['"True"', '"False"', '"False"', '"True"']),
    ("wsc.fixed", "test"): ("WSC.jsonl", [0, 0, 0, 1], ['"False"', '"False"', '"False"', '"True"']),
    ("record", "test"): (
        "ReCoRD.jsonl",
        ["Lopez", "Paris", "Karl Huber", "Vienna"],
        ['"Lopez"', '"Paris"', '"Karl Huber"', '"Vienna"'],
    ),
    ("axb", "test"): (
        "AX-b.jsonl",
        [1, 0, 1, 0],
        ['"not_entailment"', '"entailment"', '"not_entailment"', '"entailment"'],
    ),
    ("axg", "test"): (
        "AX-g.jsonl",
        [1, 1, 0, 0],
        ['"not_entailment"', '"not_entailment"', '"entailment"', '"entailment"'],
    ),
}
MULTIRC_ANSWERS = [1, 0, 0, 0, 1, 1]
MULTIRC_LINES = [
    '{"idx": 0, "passage": {"questions": [{"idx": 0, "answers": [{"idx": 0, "label": 1}, {"idx": 1, "label": 0}, '
    '{"idx": 2, "label": 0}]}, {"idx": 1, "answers": [{"idx": 3, "label": 0}, {"idx": 4, "label": 1}]}]}}',
    '{"idx": 1, "passage": {"questions": [{"idx": 2, "answers": [{"idx": 5, "label": 1}]}]}}',
]


def submission_of(benchmark):
    """Rows and answers of all that a benchmark wants."""
    if benchmark == "glue":
        return {key: (rows_of("glue", *key), answers) for key, (_, answers, _) in GLUE_FILES.items()}
    wanted = {key: answers for key, (_, answers, _) in SUPER_GLUE_FILES.items() if key[0] != "wsc.fixed"}
    wanted["multirc", "test"] = MULTIRC_ANSWERS
    return {key: (rows_of("super_glue", *key), answers) for key, answers in wanted.items()}


def test_all_test_splits_are_tried_here():
    tried = [("glue", *key) for key in GLUE_FILES] + [("super_glue", *key) for key in SUPER_GLUE_FILES]
    tried.append(("super_glue", "multirc", "test"))
    every = [(*key, split) for key in LABEL_NAMES for split in splits_of(*key) if split.startswith("test")]
    assert sorted(tried) == sorted(every)


@pytest.mark.parametrize("key", GLUE_FILES, ids="-".join)
def test_glue(key):
    file, answers, labels = GLUE_FILES[key]
    task = find_task("glue", key[0])
    expected = ["index\tprediction", *(f"{i}\t{label}" for i, label in enumerate(labels))]
    assert prediction_lines(task, key[1], rows_of("glue", *key), answers) == expected
    assert task.test_splits[key[1]] == file


@pytest.mark.parametrize("key", SUPER_GLUE_FILES, ids="-".join)
def test_super_glue(key):
    file, answers, labels = SUPER_GLUE_FILES[key]
    task = find_task("super_glue", key[0])
    expected = [f'{{"idx": {i}, "label": {label}}}' for i, label in enumerate(labels)]
    assert prediction_lines(task, key[1], rows_of("super_glue", *key), answers) == expected
    assert task.test_splits[key[1]] == file


def test_multirc_has_a_line_a_passage():
    task = find_task("super_glue", "multirc")
    assert prediction_lines(task, "test", rows_of("super_glue", "multirc", "test"), MULTIRC_ANSWERS) == MULTIRC_LINES


@pytest.mark.parametrize(
    ("benchmark", "name"), [("glue", "stsb"), ("super_glue", "multirc"), ("super_glue", "record")]
)
def test_the_order_of_the_rows_does_not_matter(benchmark, name):
    task = find_task(benchmark, name)
    rows, answers = submission_of(benchmark)[name, "test"]
    shuffled = list(zip(rows, answers, strict=True))
    random.Random(1).shuffle(shuffled)
    assert prediction_lines(task, "test", *zip(*shuffled, strict=True)) == prediction_lines(
        task, "test", rows, answers
    )


def test_numbers_of_numpy_are_answers():
    rows = rows_of("glue", "rte", "test")
    task = find_task("glue", "rte")
    answers = np.array([1, 0, 0, 1])
    for row in rows:
        row["idx"] = np.int32(row["idx"])
    assert prediction_lines(task, "test", rows, answers)[1:] == [
        "0\tnot_entailment",
        "1\tentailment",
        "2\tentailment",
        "3\tnot_entailment",
    ]
    task = find_task("super_glue", "boolq")
    assert json.loads(prediction_lines(task, "test", rows, answers)[3]) == {"idx": 3, "label": "true"}


def test_real_rows_in_the_form_of_multirc(glue):
    rows = real_rows(glue, "super_glue", "multirc", "validation")
    lines = prediction_lines(find_task("super_glue", "multirc"), "test", rows, rows["label"])
    passages = [json.loads(line) for line in lines]
    assert [passage["idx"] for passage in passages] == list(range(83))
    assert sum(len(passage["passage"]["questions"]) for passage in passages) == 953
    labels = [
        answer["label"]
        for passage in passages
        for question in passage["passage"]["questions"]
        for answer in question["answers"]
    ]
    assert labels == rows["label"][:]


def test_real_rows_of_record(glue):
    rows = real_rows(glue, "super_glue", "record")
    answers = [row["answers"][0] for row in rows]
    lines = [json.loads(line) for line in prediction_lines(find_task("super_glue", "record"), "test", rows, answers)]
    expected = sorted((row["idx"]["query"], row["answers"][0]) for row in rows)
    assert [(line["idx"], line["label"]) for line in lines] == expected


def test_required_files():
    assert set(required_files("glue")) == {file for file, _, _ in GLUE_FILES.values()}
    assert set(required_files("super_glue")) == {file for file, _, _ in SUPER_GLUE_FILES.values()} | {"MultiRC.jsonl"}
    assert (len(required_files("glue")), len(required_files("super_glue"))) == (11, 10)
    with pytest.raises(ValueError, match="'super' is none of 'glue', 'super_glue'"):
        required_files("super")


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_whole_submission(tmp_path, benchmark):
    predictions = submission_of(benchmark)
    path = write_submission(tmp_path / "handed-in" / "submission.zip", benchmark, predictions)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == sorted(required_files(benchmark))
        for (name, split), (rows, answers) in predictions.items():
            task = find_task(benchmark, name)
            text = archive.read(task.test_splits[split]).decode()
            assert text == "".join(f"{line}\n" for line in prediction_lines(task, split, rows, answers))
        assert {stat.S_IMODE(entry.external_attr >> 16) for entry in archive.infolist()} == {0o644}


def test_the_same_predictions_give_the_same_bytes(tmp_path):
    predictions = submission_of("super_glue")
    first = write_submission(tmp_path / "1.zip", "super_glue", predictions)
    second = write_submission(tmp_path / "2.zip", "super_glue", dict(reversed(predictions.items())))
    assert first.read_bytes() == second.read_bytes()


def test_wsc_fixed_stands_for_wsc(tmp_path):
    predictions = submission_of("super_glue")
    predictions["wsc.fixed", "test"] = predictions.pop(("wsc", "test"))
    write_submission(tmp_path / "all.zip", "super_glue", predictions)
    predictions["wsc", "test"] = predictions["wsc.fixed", "test"]
    with pytest.raises(ValueError, match="WSC.jsonl would be written twice"):
        write_submission(tmp_path / "twice.zip", "super_glue", predictions)


def test_missing_files_are_listed_and_no_zip_is_written(tmp_path):
    predictions = submission_of("glue")
    del predictions["mnli", "test_mismatched"], predictions["ax", "test"]
    with pytest.raises(ValueError, match="no predictions for MNLI-mm.tsv, AX.tsv. .*partial=True"):
        write_submission(tmp_path / "submission.zip", "glue", predictions)
    assert not list(tmp_path.iterdir())


def test_missing_rows_are_an_error_too(tmp_path):
    predictions = submission_of("super_glue")
    rows, answers = predictions["multirc", "test"]
    predictions["multirc", "test"] = (rows[:1] + rows[3:], answers[:1] + answers[3:])
    with pytest.raises(ValueError, match="refuse the submission: MultiRC.jsonl lacks the rows with idx 1, 2. "):
        write_submission(tmp_path / "submission.zip", "super_glue", predictions)


def test_partial_writes_what_there_is_and_warns(tmp_path, caplog):
    rows = [{"idx": i} for i in range(40, 50)]
    predictions = {("rte", "test"): (rows, [0] * 10)}
    path = write_submission(tmp_path / "submission.zip", "glue", predictions, partial=True)
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["RTE.tsv"]
        assert archive.read("RTE.tsv").decode().splitlines()[:2] == ["index\tprediction", "40\tentailment"]
    (message,) = caplog.messages
    assert "RTE.tsv lacks the rows with idx 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 30 more" in message
    assert "no predictions for CoLA.tsv, SST-2.tsv, MRPC.tsv, STS-B.tsv, QQP.tsv, MNLI-m.tsv, MNLI-mm.tsv" in message


def test_a_failing_submission_leaves_the_former_zip(tmp_path):
    path = write_submission(tmp_path / "submission.zip", "glue", submission_of("glue"))
    former = path.read_bytes()
    predictions = submission_of("glue")
    predictions["wnli", "test"][1][0] = 2
    with pytest.raises(
        ValueError, match="answer 2 to the row with idx=0 of glue wnli is no label id: ids run from 0 to 1"
    ):
        write_submission(path, "glue", predictions)
    assert path.read_bytes() == former


@pytest.mark.parametrize("answer", [-1, 3, 0.0, "neutral", None])
def test_answers_that_are_no_label_ids(answer):
    with pytest.raises(ValueError, match=f"answer {answer!r} to the row with idx=5 .* ids run from 0 to 2"):
        prediction_lines(find_task("glue", "ax"), "test", rows_of("glue", "ax", "test"), [0, 1, 2, 0, 1, answer])


def test_a_number_that_overflowed():
    with pytest.raises(ValueError, match="answer nan to the row with idx=1 of glue stsb is no number"):
        prediction_lines(find_task("glue", "stsb"), "test", [{"idx": 0}, {"idx": 1}], [1.0, float("nan")])


def test_an_answer_that_is_no_entity():
    rows = rows_of("super_glue", "record", "test")
    with pytest.raises(ValueError, match="answer 'Rome' to the row with idx=.* is none of its entities"):
        prediction_lines(find_task("super_glue", "record"), "test", rows, ["Paris", "Rome", "Huber", "Danube"])


@pytest.mark.parametrize("split", ["validation", "train", "test"])
def test_a_split_that_is_not_handed_in(split):
    with pytest.raises(ValueError, match=f"split='{split}' of glue mnli .* 'test_matched', 'test_mismatched'"):
        prediction_lines(find_task("glue", "mnli"), split, [{"idx": 0}], [0])


@pytest.mark.parametrize(("rows", "answers"), [([], []), ([{"idx": 0}], []), ([{"idx": 0}], [0, 1])])
def test_rows_and_answers_that_do_not_fit(rows, answers):
    with pytest.raises(
        ValueError, match=f"{len(answers)} answers for the {len(rows)} rows of split 'test' of glue rte"
    ):
        prediction_lines(find_task("glue", "rte"), "test", rows, answers)


def test_an_index_that_is_there_twice():
    with pytest.raises(ValueError, match="idx=4 is there twice in split 'test' of glue rte"):
        prediction_lines(find_task("glue", "rte"), "test", [{"idx": 4}, {"idx": 2}, {"idx": 4}], [0, 1, 0])


@pytest.mark.parametrize(
    ("benchmark", "name", "row"),
    [
        ("glue", "rte", {"sentence1": "Rain.", "sentence2": "Sun."}),
        ("glue", "rte", {"idx": "7"}),
        ("super_glue", "cb", {"idx": None}),
        ("super_glue", "multirc", {"idx": 3}),
        ("super_glue", "multirc", {"idx": {"paragraph": 0, "question": 1}}),
        ("super_glue", "record", {"idx": {"passage": 0}, "entities": ["Rome"]}),
    ],
)
def test_an_index_that_is_missing(benchmark, name, row):
    with pytest.raises(ValueError, match=f"A row of {benchmark} {name} has idx=.*, not (a number|the numbers)"):
        prediction_lines(find_task(benchmark, name), "test", [row], [0])
