"""Predictions are written once, read by all, and never taken for those of another teacher or text."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_elastic.training.teacher_cache import TeacherCache, count_examples, fingerprint
from hf_elastic.training.teachers import Teacher, freeze, observe
from tests.training.cases import collate, make_model, make_rows
from tests.training.teacher_cache_worker import NUMBER
from tests.training.teacher_cases import make_numbered_rows, make_teacher

ROWS = make_numbered_rows(8)
BATCHES = [collate(ROWS[:4]), collate(ROWS[4:])]


def count_calls(model: torch.nn.Module) -> list[int]:
    """A list that grows with every forward pass, by the number of rows in it."""
    calls = []
    model.register_forward_hook(lambda *given: calls.append(len(given[-1].logits)))
    return calls


def make_cache(folder: Path, number: int = 8, **settings) -> tuple[TeacherCache, list[int]]:
    model = make_teacher(**settings)
    return TeacherCache(folder, Teacher(model, name="teacher_0"), number), count_calls(model)


def rows_file(folder: Path) -> Path:
    (path,) = folder.glob("*/rows.npy")
    return path


def test_a_second_epoch_and_a_second_run_do_not_run_the_teacher(tmp_path):
    cache, calls = make_cache(tmp_path)
    expected = [observe(Teacher(make_teacher()), batch).logits for batch in BATCHES]
    for _ in range(3):
        for batch, logits in zip(BATCHES, expected, strict=True):
            assert torch.equal(cache.observe(batch).logits, logits)
    assert calls == [4, 4]

    again, calls = make_cache(tmp_path)
    mixed = again.observe(collate([ROWS[6], ROWS[1]])).logits
    assert calls == [] and torch.equal(mixed, torch.stack([expected[1][2], expected[0][1]]))


def test_a_batch_with_a_new_example_runs_the_teacher(tmp_path):
    cache, calls = make_cache(tmp_path)
    cache.observe(BATCHES[0])
    cache.observe(collate(ROWS[3:5]))
    assert calls == [4, 2]
    cache.observe(collate(ROWS[:5]))
    assert calls == [4, 2]


def test_padding_is_no_other_input(tmp_path):
    cache, calls = make_cache(tmp_path)
    cache.observe(BATCHES[0])
    pad = {name: torch.nn.functional.pad(BATCHES[0][name], (0, 3)) for name in ("input_ids", "attention_mask")}
    cache.observe({**BATCHES[0], **pad})
    assert calls == [4]


def test_two_processes_fill_one_cache(tmp_path):
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.training.teacher_cache_worker", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(root)}
    workers = [subprocess.Popen([*command, first], cwd=root, env=environment) for first in ("0", "1")]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == [fingerprint(Teacher(make_teacher()))]

    rows = make_numbered_rows(NUMBER)
    cache, calls = make_cache(tmp_path, NUMBER)
    logits = cache.observe(collate(rows)).logits
    assert calls == []
    torch.testing.assert_close(logits, observe(Teacher(make_teacher()), collate(rows)).logits)


@pytest.mark.parametrize("field", ["checksum", "logits", "inputs"])
def test_a_half_written_row_is_no_row(tmp_path, field):
    cache, calls = make_cache(tmp_path)
    expected = cache.observe(BATCHES[0]).logits
    rows = np.load(rows_file(tmp_path), mmap_mode="r+")
    rows[field][2] = 0  # as where a process ended between two writes
    assert torch.equal(cache.observe(BATCHES[0]).logits, expected)
    assert calls == [4, 4]
    cache.observe(BATCHES[0])
    assert calls == [4, 4]


def test_what_makes_another_teacher():
    teachers = [
        Teacher(make_teacher()),
        Teacher(make_teacher(seed=4)),
        Teacher(make_teacher(), inputs="own_"),
        Teacher(make_teacher(hidden_act="relu")),
        Teacher(make_teacher("Electra")),
        Teacher(make_teacher()),
    ]
    freeze(teachers[-1], torch.device("cpu"), "bfloat16")
    assert len({fingerprint(teacher) for teacher in teachers}) == len(teachers)
    nudged = make_teacher()
    with torch.no_grad():
        nudged.classifier.bias[0] += 1e-6
    assert fingerprint(Teacher(nudged)) != fingerprint(Teacher(make_teacher()))


def test_what_does_not_make_another_teacher(tmp_path):
    model = make_teacher()
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert fingerprint(Teacher(loaded)) == fingerprint(Teacher(model, weight=2.0, name="other"))


def test_adapters_make_another_teacher():
    peft = pytest.importorskip("peft")

    def adapted(alpha: int) -> Teacher:
        torch.manual_seed(0)
        settings = {"target_modules": ["query", "key"], "r": 2, "lora_alpha": alpha, "init_lora_weights": False}
        return Teacher(peft.get_peft_model(make_teacher(), peft.LoraConfig(task_type="SEQ_CLS", **settings)))

    found = [fingerprint(teacher) for teacher in (Teacher(make_teacher()), adapted(2), adapted(4))]
    assert len(set(found)) == 3 and fingerprint(adapted(2)) == found[1]


def test_teachers_share_a_folder_and_not_their_rows(tmp_path):
    for settings in ({}, {"seed": 4}, {"num_labels": 2}):
        cache, calls = make_cache(tmp_path, **settings)
        logits = cache.observe(BATCHES[0]).logits
        assert calls == [4] and torch.equal(logits, observe(Teacher(make_teacher(**settings)), BATCHES[0]).logits)


def test_a_folder_of_another_teacher(tmp_path):
    make_cache(tmp_path)
    (folder,) = tmp_path.iterdir()
    other = fingerprint(Teacher(make_teacher(num_labels=2)))
    folder.rename(tmp_path / other)
    with pytest.raises(ValueError, match="cache of another teacher.*fingerprint"):
        make_cache(tmp_path, num_labels=2)
    description = json.loads((tmp_path / other / "teacher.json").read_text()) | {"fingerprint": other}
    (tmp_path / other / "teacher.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match="num_labels=3, this teacher 2. Remove the folder"):
        make_cache(tmp_path, num_labels=2)
    (tmp_path / other / "teacher.json").unlink()
    with pytest.raises(ValueError, match="teacher.json is missing. Remove the folder"):
        make_cache(tmp_path, num_labels=2)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("teacher.json", None, "teacher.json is missing"),
        ("teacher.json", b"", "teacher.json is cut off or changed"),
        ("teacher.json", b'{"fingerprint": "', "teacher.json is cut off or changed"),
        ("teacher.json", b"[]", "teacher.json is cut off or changed"),
        ("teacher.json", b"{}", "teacher.json is cut off or changed"),
        ("teacher.json", b"\xff", "teacher.json is cut off or changed"),
        ("rows.npy", None, "rows.npy is missing"),
        ("rows.npy", b"", "rows.npy is no array"),
        ("rows.npy", b"\x93NUMPY\x01\x00", "rows.npy is no array"),
        ("rows.npy", b"anything else", "rows.npy is no array"),
    ],
)
def test_a_damaged_cache(tmp_path, name, content, fault):
    make_cache(tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{folder} is no cache of a teacher: {fault}.*\. Remove the folder\."):
        make_cache(tmp_path)


def test_rows_that_are_those_of_another_cache(tmp_path):
    make_cache(tmp_path)
    np.save(rows_file(tmp_path), np.zeros(8))
    with pytest.raises(ValueError, match="rows.npy has 8 rows of float64, which teacher.json does not.*Remove"):
        make_cache(tmp_path)


def test_rows_that_are_cut_off_are_predicted_again(tmp_path):
    cache, _ = make_cache(tmp_path)
    expected = [cache.observe(batch).logits for batch in BATCHES]
    path = rows_file(tmp_path)
    os.truncate(path, path.stat().st_size - 40)
    again, calls = make_cache(tmp_path)
    assert all(torch.equal(again.observe(b).logits, logits) for b, logits in zip(BATCHES, expected, strict=True))
    assert calls == [4]


def test_more_examples_than_there_is_room_for(tmp_path):
    make_cache(tmp_path, number=8)
    make_cache(tmp_path, number=5)
    with pytest.raises(ValueError, match="room for 8 examples.*largest example_id of train_dataset is 9"):
        make_cache(tmp_path, number=10)


def test_another_text_under_the_same_id(tmp_path):
    cache, _ = make_cache(tmp_path)
    cache.observe(BATCHES[0])
    changed = collate(ROWS[:4])
    changed["input_ids"][1, 0] += 1
    with pytest.raises(ValueError, match="example_id=1 has other inputs.*another teacher_cache_dir"):
        cache.observe(changed)


@pytest.mark.parametrize("wrong", [-1, 8])
def test_ids_that_are_out_of_range_or_missing(tmp_path, wrong):
    cache, calls = make_cache(tmp_path)
    with pytest.raises(ValueError, match=rf"example_id={wrong} is out of range.*rows 0 to 7.*add_column"):
        cache.observe({**BATCHES[0], "example_id": torch.tensor([0, 1, wrong, 2])})
    with pytest.raises(ValueError, match="has no example_id.*input_ids, attention_mask.*add_column"):
        cache.observe(collate(make_rows("classification", 4)))
    assert calls == []


def test_predictions_of_tokens_are_not_cached(tmp_path):
    cache = TeacherCache(tmp_path, Teacher(make_model("token_classification"), name="tagger"), 8)
    with pytest.raises(ValueError, match=r"'tagger' gives logits of shape \(4, \d+, 5\).*Only.*sequence classif"):
        cache.observe(BATCHES[0])


def test_ids_of_a_dataset():
    datasets = pytest.importorskip("datasets")
    ids = [4, 0, 7]
    table = datasets.Dataset.from_dict({"example_id": ids, "text": ["a", "b", "c"]})
    for form in (table, table.with_format("torch"), table.to_list()):
        assert count_examples(form) == 8


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 1, 1], "example_id=1 is that of 2 examples"),
        ([0, -2, 1], "example_id=-2 is no whole number"),
        (["a", "b", "c"], "example_id=.*'a'.* is no whole number"),
        ([0.5, 1.0], "example_id=.*0.5.* is no whole number"),
        ([], "no column 'example_id', which teacher_cache_dir needs.*add_column"),
    ],
)
def test_ids_that_number_nothing(ids, message):
    with pytest.raises(ValueError, match=message):
        count_examples([{"example_id": i} for i in ids] or [{"input_ids": [1]}])
