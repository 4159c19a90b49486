"""Members are found in what runs left, checked to be of one thing, and answer together."""

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from hf_elastic.tasks.benchmark_training import predictions_file, training_folder
from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task
from hf_elastic.tasks.ensemble import find_members, join, named_in, submit_ensembles
from hf_elastic.tasks.predictions import Predictions
from hf_elastic.tasks.scoring import score

from .benchmark_rows import rows_of
from .saved_runs import predictions_of, save_run

EVERY_TASK = [(benchmark, name) for benchmark, tasks in BENCHMARKS.items() for name in tasks]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("", ["large:1", "small:1", "large:2", "small:2", "large:10", "small:10"]),
        (":small", ["small:1", "small:2", "small:10"]),
        (":large:2", ["large:2"]),
        ("::10", ["large:10", "small:10"]),
    ],
)
def test_what_is_left_out_stands_for_all(tmp_path, chosen, names):
    save_run(tmp_path / "runs", "glue", "rte", seeds=(10, 1, 2))
    members = find_members("rte", f"{tmp_path / 'runs'}{chosen}", weight=2.0)
    assert [member.name for member in members] == [f"{tmp_path / 'runs'}:{name}" for name in names]
    assert {member.weight for member in members} == {2.0}


def test_a_folder_may_have_colons_in_its_name(tmp_path):
    save_run(tmp_path / "bert:small:1", "glue", "rte")
    assert len(find_members("rte", str(tmp_path / "bert:small:1"))) == 2
    (member,) = find_members("rte", str(tmp_path / "bert:small:1:large"))
    assert member.size == "large" and member.file("test").is_file()


def test_members_that_are_not_there(tmp_path):
    run = tmp_path / "runs"
    (result,) = save_run(run, "glue", "rte")
    replace(result, fold=0).save(training_folder(run, "cola", 1, 0))
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*other'. Give <folder of a run>\[:size\[:seed"):
        find_members("rte", f"{tmp_path / 'other'}:small:1")
    with pytest.raises(FileNotFoundError, match="has no result of mrpc .but of rte; folds"):
        find_members("mrpc", str(run))
    with pytest.raises(FileNotFoundError, match="has no result of cola .but of rte; folds"):
        find_members("cola", str(run))
    with pytest.raises(FileNotFoundError, match="has rte of the seeds 1, and not of 7"):
        find_members("rte", f"{run}:small:7")
    with pytest.raises(ValueError, match="the seed 'seven' is no number"):
        find_members("rte", f"{run}:small:seven")
    with pytest.raises(ValueError, match="has no size 'tiny' of rte, but large, small"):
        find_members("rte", f"{run}:tiny")


def test_all_are_the_tasks_of_the_run(tmp_path):
    (result,) = save_run(tmp_path, "glue", "rte")
    save_run(tmp_path, "glue", "cola")
    replace(result, fold=0).save(training_folder(tmp_path, "mrpc", 1, 0))
    assert named_in(f"{tmp_path}:small", ["rte", "all", "qqp"]) == ["rte", "cola", "qqp"]


@pytest.mark.parametrize(("benchmark", "name"), EVERY_TASK)
def test_every_task_is_averaged_scored_and_handed_in(tmp_path, benchmark, name):
    for number, run in enumerate(("one", "two")):
        save_run(tmp_path / run, benchmark, name, first=100 * number)
    members = [of for run in ("one", "two") for of in find_members(name, f"{tmp_path / run}:small")]
    joined, task = join(members), find_task(benchmark, name)
    for split, together in joined.predictions.items():
        alone = [predictions_of(benchmark, name, split, seed).logits.astype(float) for seed in (11, 111)]
        expected = np.mean(alone if task.label_range else [softmax(of, axis=-1) for of in alone], axis=0)
        np.testing.assert_allclose(together.logits if task.label_range else np.exp(together.logits), expected)
        if together.labels is not None:
            assert joined.scores[split] == score(task, rows_of(benchmark, name, split), together.answers)
    assert list(joined.predictions) == [split for split in task.splits if split != "train"]
    folder = joined.save(tmp_path / "out")
    assert folder == tmp_path / "out" / name / "ensemble"
    for split, together in joined.predictions.items():
        saved = Predictions.load(folder / "predictions" / split / "ensemble.npz")
        np.testing.assert_array_equal(saved.logits, together.logits)
        assert saved.answers == together.answers
    values = json.loads((folder / "ensemble.json").read_text())
    assert values["scores"] == joined.scores
    second = {"run": str(tmp_path / "two"), "size": "small", "seed": 1, "weight": 1.0, "scores": members[1].scores}
    assert values["members"][1] == second
    assert {split: of["small"] for split, of in members[1].result.scores.items()} == second["scores"]
    path = submit_ensembles([joined], tmp_path / "zips")
    assert path.name == f"{benchmark}-ensemble.zip"
    with zipfile.ZipFile(path) as archive:
        assert set(archive.namelist()) == set(task.test_splits.values())


def test_weights_count_by_their_ratios(tmp_path):
    for number, run in enumerate(("one", "two")):
        save_run(tmp_path / run, "glue", "mnli", first=100 * number)
    weights = {"one": 6.0, "two": 2.0}
    weighted = join([of for run in weights for of in find_members("mnli", f"{tmp_path / run}:large", weights[run])])
    one, two = (softmax(predictions_of("glue", "mnli", "test_matched", seed).logits, axis=-1) for seed in (10, 110))
    together = np.exp(weighted.predictions["test_matched"].logits)
    np.testing.assert_allclose(together, 0.75 * one + 0.25 * two, rtol=1e-5)


def test_of_two_forms_of_a_task_the_original_is_handed_in(tmp_path):
    for name in ("wsc.fixed", "wsc"):
        save_run(tmp_path, "super_glue", name)
    fixed, original = (join(find_members(name, str(tmp_path))) for name in ("wsc.fixed", "wsc"))
    with zipfile.ZipFile(submit_ensembles([fixed, original], tmp_path / "zips")) as archive:
        assert archive.namelist() == ["WSC.jsonl"]
    save_run(tmp_path / "glue", "glue", "rte")
    with pytest.raises(ValueError, match="for one benchmark, and these are tasks of super_glue and glue"):
        submit_ensembles([original, join(find_members("rte", str(tmp_path / "glue")))], tmp_path / "zips")


def test_members_that_do_not_go_together(tmp_path):
    run, other = tmp_path / "glue", tmp_path / "super_glue"
    save_run(run, "glue", "rte", seeds=(1, 2))
    save_run(other, "super_glue", "rte")
    members = find_members("rte", f"{run}:small")
    with pytest.raises(ValueError, match="An ensemble of .*glue:small:1: give at least two members"):
        join(members[:1])
    with pytest.raises(ValueError, match="glue:small:1 is there twice: to let it count more, give it a weight"):
        join([*members, members[0]])
    with pytest.raises(ValueError, match="glue:small:1 is of glue rte and .*super_glue:small:1 is of super_glue rte"):
        join([*members, *find_members("rte", f"{other}:small")])


def test_members_that_did_not_predict_the_same(tmp_path):
    first, second = save_run(tmp_path, "glue", "rte", seeds=(1, 2))
    members = find_members("rte", f"{tmp_path}:small")
    members[1].file("test").unlink()
    assert list(join(members).predictions) == ["validation"]  # and the log says so
    hashes = {**second.request["data"], "validation": "another"}
    replace(second, request={"data": hashes}).save(training_folder(tmp_path, "rte", 2))
    with pytest.raises(ValueError, match="small:1 and .*small:2 did not predict the same rows as 'validation'"):
        join(find_members("rte", f"{tmp_path}:small"))
    members[1].file("validation").unlink()
    with pytest.raises(FileNotFoundError, match="There is no split of rte that .* have all predicted"):
        join(members)


def test_labels_in_another_order(tmp_path):
    save_run(tmp_path, "glue", "mnli", seeds=(1, 2))
    path = predictions_file(training_folder(tmp_path, "mnli", 2), "test_matched", "small")
    with np.load(path) as arrays:
        parts, logits = json.loads(arrays["parts"].tobytes()), arrays["logits"]
    parts["label_names"] = parts["label_names"][::-1]
    np.savez(path, logits=logits, parts=np.frombuffer(json.dumps(parts).encode(), dtype=np.uint8))
    with pytest.raises(ValueError, match="for the labels contradiction, neutral, entailment, and mnli has entailment"):
        join(find_members("mnli", f"{tmp_path}:small"))
