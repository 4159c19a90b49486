"""The whole way of every task, from its rows to the file for the server, and runs that stop, fail or change."""

import json
import shutil
import zipfile

import datasets
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForSequenceClassification

from hf_elastic.checkpoints import load_elastic, load_tokenizer
from hf_elastic.hub.exporting import export_family
from hf_elastic.recipes import TrainingSettings
from hf_elastic.tasks.benchmark_request import BenchmarkRequest, content_hash
from hf_elastic.tasks.benchmark_run import run_benchmark
from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task
from hf_elastic.tasks.perturbations import PERTURBATIONS
from hf_elastic.tasks.predictions import Predictions
from hf_elastic.tasks.report import AVERAGE, score_table, size_scores, write_report
from hf_elastic.tasks.run_submission import submit
from hf_elastic.tasks.task_data import read_task
from hf_elastic.tasks.task_mixture import Mixing
from hf_elastic.tasks.task_result import TaskResult
from hf_elastic.tasks.task_run import answer_task

from .benchmark_rows import real_rows, rows_of, write_task
from .tiny_runs import UNTRAINED, request_of

TRAINED = [(b, name) for b, tasks in BENCHMARKS.items() for name, task in tasks.items() if task.model_of is None]


@pytest.fixture(scope="module")
def rte_run(tmp_path_factory, source):
    """A folder with `rows` of RTE and its diagnostics, and with the results of RTE in `out`."""
    folder = tmp_path_factory.mktemp("rte")
    for name in ("rte", "axb", "axg"):
        write_task(folder / "rows", "super_glue", name)
    run_benchmark(request_of("super_glue", source, folder / "rows"), ["rte"], folder / "out")
    return folder


@pytest.fixture
def rte(rte_run, tmp_path):
    """A copy of it, in another place than it was trained in."""
    return shutil.copytree(rte_run, tmp_path / "rte")


@pytest.mark.parametrize(("benchmark", "name"), TRAINED)
def test_the_whole_way_of_every_task(tmp_path, source, benchmark, name):
    task, out = find_task(benchmark, name), tmp_path / "out"
    write_task(tmp_path, benchmark, name)
    run = run_benchmark(request_of(benchmark, source, tmp_path), [name], out)
    (result,) = run.results
    assert tuple(result.scores) == task.validation_splits
    for by_size in result.scores.values():
        assert list(by_size) == ["whole", "half"]
        assert all(tuple(metrics) == task.metrics for metrics in by_size.values())
    assert result.costs["half"].encoder_parameters < result.costs["whole"].encoder_parameters
    assert TaskResult.load(out / name / "seed-42") == result
    assert [row["size"] for row in score_table(size_scores([result]))] == ["whole", "half"]
    paths = submit(benchmark, [result], out, tmp_path / "zips")
    assert [path.name for path in paths] == [f"{benchmark}-{size}-seed-42.zip" for size in ("whole", "half")]
    with zipfile.ZipFile(paths[0]) as archive:
        assert set(archive.namelist()) == set(task.test_splits.values())
        for split, file in task.test_splits.items():
            rows = rows_of(benchmark, name, split)
            passages = {row["idx"]["paragraph"] for row in rows} if name == "multirc" else rows
            lines = archive.read(file).decode().splitlines()
            assert len(lines) == len(passages) + (benchmark == "glue")  # which has a header


@pytest.mark.parametrize(("benchmark", "name"), TRAINED)
def test_the_whole_way_on_real_rows(tmp_path, glue, source, benchmark, name):
    rows = real_rows(glue, benchmark, name)
    far_apart = rows.select(range(0, len(rows), max(len(rows) // 16, 1)))  # of several passages
    request = request_of(benchmark, source, {"train": far_apart}, settings={"finetune_epochs": 0.0})
    (result,) = run_benchmark(request, [name], tmp_path).results
    assert result.scores[find_task(benchmark, name).validation_splits[0]]["half"]


def test_diagnostics_are_answered_by_the_model_of_their_task(rte, source):
    request, begun = request_of("super_glue", source, rte / "rows"), []
    run = run_benchmark(request, ["axb", "axg", "rte"], rte / "out", begun.append)
    assert [result.task for result in run.results] == ["rte", "axb", "axg"] and not run.failures
    assert begun == ["axb/seed-42", "axg/seed-42"]
    assert set(run.results[2].scores["test"]["half"]) == {"accuracy", "gender_parity"}
    with pytest.raises(FileNotFoundError, match="axb is answered by a model of rte, .* run rte first, or with it"):
        run_benchmark(request, ["axb"], rte / "other")


def test_a_model_of_another_request_answers_no_diagnostic(rte, source):
    request = request_of("super_glue", source, rte / "rows", settings={"learning_rate": 2e-3})
    with pytest.raises(ValueError, match="rte/seed-42 has the result of a run with learning_rate=0.001, and now it"):
        run_benchmark(request, ["axb"], rte / "out")


def test_a_diagnostic_is_not_that_of_a_model_of_other_rows(rte, source):
    request = request_of("super_glue", source, rte / "rows")
    run_benchmark(request, ["axb"], rte / "out")
    change_a_row(rte / "rows")
    shutil.rmtree(rte / "out" / "rte")
    with pytest.raises(ValueError, match=r"axb/seed-42 has the result of a run with training_data\[train\]="):
        run_benchmark(request, ["rte", "axb"], rte / "out")


def test_a_run_goes_on_where_it_stopped_and_one_failure_does_not_stop_it(tmp_path, source):
    write_task(tmp_path, "glue", "rte")
    request, begun = request_of("glue", source, tmp_path, settings=UNTRAINED), []
    first = run_benchmark(request, ["cola", "rte"], tmp_path / "out", begun.append)
    assert begun == ["cola/seed-42", "rte/seed-42"]
    assert len(first.results) == 1 and list(first.failures) == ["cola/seed-42"]
    assert "no rows of cola" in (tmp_path / "out" / "cola" / "seed-42" / "error.txt").read_text()
    write_task(tmp_path, "glue", "cola")
    begun.clear()
    second = run_benchmark(request, ["cola", "rte"], tmp_path / "out", begun.append)
    assert begun == ["cola/seed-42"] and not second.failures and len(second.results) == 2
    assert not (tmp_path / "out" / "cola" / "seed-42" / "error.txt").exists()
    rows = write_report(second.results, tmp_path / "out")
    assert [row.task for row in rows if row.size == "half"] == ["cola", "rte", AVERAGE]
    report = (tmp_path / "out" / "report.md").read_text()
    assert "of cola, rte; sst2" in report and (tmp_path / "out" / "report.png").stat().st_size > 10_000


def test_tasks_are_trained_together_where_a_mixing_is_given(tmp_path, source):
    for task in ("copa", "rte", "axb"):
        write_task(tmp_path, "super_glue", task)
    names, out, begun = ["copa", "rte", "axb"], tmp_path / "out", []
    request = request_of("super_glue", source, tmp_path, settings=UNTRAINED, mixing=Mixing("uniform"))
    run = run_benchmark(request, names, out, begun.append)
    assert begun == ["copa+rte/seed-42", "axb/seed-42"] and not run.failures
    assert [result.task for result in run.results] == names and all(result.scores for result in run.results)
    encoders = [load_elastic(out / name / "seed-42" / "supernet").base_model.state_dict() for name in names[:2]]
    assert all(torch.equal(weight, encoders[1][name]) for name, weight in encoders[0].items())
    begun.clear()
    again = run_benchmark(request, names, out, begun.append)
    assert not begun and again.results == run.results
    for changes, message in (
        ({"mixing": Mixing("square_root")}, "mixing={.*'uniform'.*, and now it is {.*'square_root'"),
        ({"mixing": None}, "mixing={.*, and now it is None"),
    ):
        other = request_of("super_glue", source, tmp_path, settings=UNTRAINED, **changes)
        with pytest.raises(ValueError, match=message):
            run_benchmark(other, names, out)
    with pytest.raises(ValueError, match="mixing is of several tasks, and there is rte"):
        run_benchmark(request, ["rte", "axb"], out)
    with pytest.raises(ValueError, match="folds=2 is of one task at a time"):
        request_of("super_glue", source, tmp_path, folds=2, mixing=Mixing())


def test_tasks_that_were_to_be_trained_together_fail_together(tmp_path, source):
    write_task(tmp_path, "glue", "rte")
    request = request_of("glue", source, tmp_path, seeds=(1, 2), settings=UNTRAINED, mixing=Mixing())
    run = run_benchmark(request, ["rte", "cola"], tmp_path / "out")
    assert list(run.failures) == ["rte+cola/seed-1", "rte+cola/seed-2"] and not run.results


def test_a_training_of_several_tasks_is_repeated_as_a_whole_and_diagnostics_fail_alone(tmp_path, source):
    for task in ("copa", "rte", "axg"):
        write_task(tmp_path, "super_glue", task)
    out, names = tmp_path / "out", ["rte", "copa", "axb", "axg"]
    request = request_of("super_glue", source, tmp_path, settings=UNTRAINED, mixing=Mixing("uniform"), robustness=True)
    run = run_benchmark(request, names, out)
    assert [result.task for result in run.results] == ["rte", "copa", "axg"]
    assert list(run.failures) == ["axb/seed-42"]
    assert all(result.robustness for result in run.results)
    shutil.rmtree(out / "copa")  # as if it had been broken off between the two
    (out / "rte" / "seed-42" / "error.txt").write_text("an earlier one")
    again = run_benchmark(request, ["rte", "copa"], out)
    assert all(TaskResult.load(out / name / "seed-42").robustness for name in ("rte", "copa"))
    assert [result.robustness for result in again.results] == [result.robustness for result in run.results[:2]]
    assert not (out / "rte" / "seed-42" / "error.txt").exists()


@pytest.mark.parametrize("task", ["multirc", "record"])
def test_robustness_of_tasks_with_answers_of_their_own(tmp_path, source, task):
    write_task(tmp_path, "super_glue", task)
    request = request_of("super_glue", source, tmp_path, settings=UNTRAINED, robustness=True)
    (result,) = run_benchmark(request, [task], tmp_path / "out").results
    assert result.robustness["typos"]["half"].keys() == result.scores["validation"]["half"].keys()


def test_rows_are_told_by_all_of_them():
    rows = datasets.Dataset.from_dict({"text": [str(i) for i in range(9000)]})
    other = datasets.Dataset.from_dict({"text": [str(i) if i != 4567 else "x" for i in range(9000)]})
    assert content_hash(rows) == content_hash(rows.select(range(9000))) != content_hash(other)
    assert len({content_hash(part) for part in (rows, rows.select(range(8999)), rows.rename_column("text", "a"))}) == 3


def test_every_task_and_seed_is_run_once(rte, source, tmp_path):
    request, begun = request_of("super_glue", source, rte / "rows", seeds=(42, 42)), []
    run = run_benchmark(request, ["rte", "rte"], rte / "out", begun.append)
    assert [result.task for result in run.results] == ["rte"] and not begun
    without_rows = request_of("super_glue", source, tmp_path, seeds=(2, 1, 2))
    run_benchmark(without_rows, ["rte", "cb", "rte"], tmp_path / "out", begun.append)
    assert begun == ["rte/seed-2", "rte/seed-1", "cb/seed-2", "cb/seed-1"]


@pytest.mark.parametrize("folds", [0, 2])
def test_all_tasks_are_those_that_the_benchmark_counts(tmp_path, source, folds):
    begun = []
    run = run_benchmark(
        request_of("super_glue", source, tmp_path, folds=folds), ["all"], tmp_path / "out", begun.append
    )
    trained = ["boolq", "cb", "copa", "multirc", "record", "rte", "wic", "wsc"]
    names = trained if folds else [*trained, "axb", "axg"]
    assert list(dict.fromkeys(name.split("/")[0] for name in begun)) == names
    assert len(begun) == len(run.failures) == len(names) * max(1, folds)  # there are no rows


def test_a_result_of_other_settings_is_not_taken_for_this_one(rte, source):
    other = request_of("super_glue", source, rte / "rows", settings={"learning_rate": 2e-3})
    with pytest.raises(ValueError, match="learning_rate=0.001, and now it is 0.002. Give another folder"):
        run_benchmark(other, ["rte"], rte / "out")


def change_a_row(rows):
    path = rows / "super_glue" / "rte" / "train.parquet"
    changed = rows_of("super_glue", "rte")
    changed[2]["premise"] += " So it is."
    Dataset.from_list(changed).to_parquet(path)


def test_a_result_of_other_rows_is_not_taken_for_this_one(rte, source):
    change_a_row(rte / "rows")
    with pytest.raises(
        ValueError, match=r"rte/seed-42 has the result of a run with data\[train\]='\w+', and now it is"
    ):
        run_benchmark(request_of("super_glue", source, rte / "rows"), ["rte"], rte / "out")


@pytest.mark.parametrize("changed", [None, "model.safetensors", "config.json", "tokenizer_config.json"])
def test_a_checkpoint_is_told_by_what_it_holds(rte, source, tmp_path, changed):
    moved = shutil.copytree(source, tmp_path / "elsewhere" / source.name)
    request = request_of("super_glue", moved, rte / "rows")
    if changed is None:
        assert len(run_benchmark(request, ["rte"], rte / "out").results) == 1
        return
    content = (moved / changed).read_bytes()
    (moved / changed).write_bytes(content[:-1] + b"?")
    with pytest.raises(ValueError, match=rf"source='{source.name} \(\w+\)', and now it is '{source.name} \(\w+\)'"):
        run_benchmark(request, ["rte"], rte / "out")


def test_a_result_that_is_broken_is_an_error_before_the_first_training(rte, source):
    (rte / "out" / "rte" / "seed-42" / "result.json").write_text('{"version": 1, "task"')
    begun = []
    with pytest.raises(ValueError, match="result.json is no result of a task .*remove its folder, to train again"):
        run_benchmark(request_of("super_glue", source, rte / "rows"), ["cb", "rte"], rte / "out", begun.append)
    assert not begun


def test_nothing_is_left_of_a_run_that_was_broken_off(rte, source):
    predictions = rte / "out" / "axb" / "seed-42" / "predictions"
    (predictions / "validation").mkdir(parents=True)
    (predictions / "validation" / "half.npz").write_bytes(b"of former rows")
    run_benchmark(request_of("super_glue", source, rte / "rows"), ["axb"], rte / "out")
    assert [path.relative_to(predictions).as_posix() for path in sorted(predictions.glob("*/*"))] == [
        "test/half.npz",
        "test/whole.npz",
    ]


def fail(words, draw):
    raise ArithmeticError("as when the memory is full")


def test_robustness_is_added_to_a_result_and_its_failure_loses_nothing(rte, source, monkeypatch):
    request = request_of("super_glue", source, rte / "rows", robustness=True)
    with monkeypatch.context() as patch:
        patch.setitem(PERTURBATIONS, "typos", fail)
        with pytest.raises(ArithmeticError):
            run_benchmark(request, ["axb"], rte / "out")
    kept = TaskResult.load(rte / "out" / "axb" / "seed-42")
    assert kept.scores["test"] and not kept.robustness
    weights = rte / "out" / "rte" / "seed-42" / "supernet" / "model.safetensors"
    written, begun, phases = weights.stat().st_mtime_ns, [], []
    run = run_benchmark(request, ["rte", "axb"], rte / "out", begun.append, phases.append)
    assert begun == ["rte/seed-42", "axb/seed-42"] and not phases and weights.stat().st_mtime_ns == written
    for result in run.results:
        assert list(result.robustness) == list(PERTURBATIONS)
        assert TaskResult.load(rte / "out" / result.task / "seed-42") == result
    assert run.results[1].scores == kept.scores
    begun.clear()
    assert run_benchmark(request, ["rte", "axb"], rte / "out", begun.append).results == run.results and not begun


def test_rows_of_another_domain_are_scored_as_well(rte, source, tmp_path):
    elsewhere = tmp_path / "elsewhere.json"
    lines = [{"premise": f"It rains {i}.", "hypothesis": "It is wet.", "label": i % 2} for i in range(4)]
    elsewhere.write_text("\n".join(map(json.dumps, lines)))
    request = request_of("super_glue", source, rte / "rows", out_of_domain={"weather": elsewhere})
    phases = []
    (result,) = run_benchmark(request, ["rte"], rte / "out", on_phase=phases.append).results
    assert result.out_of_domain["weather"].rows == 4 and not phases  # nothing was trained again
    model, tokenizer = (load(rte / "out" / "rte" / "seed-42" / "supernet") for load in (load_elastic, load_tokenizer))
    texts = [[line[name] for line in lines] for name in ("premise", "hypothesis")]
    with torch.no_grad(), model.eval().use_subnet("half"):
        answers = model(**tokenizer(*texts, return_tensors="pt", padding=True)).logits.argmax(-1).tolist()
    right = sum(answer == line["label"] for answer, line in zip(answers, lines, strict=True))
    assert result.out_of_domain["weather"].scores["half"] == {"accuracy": right / 4}
    assert TaskResult.load(rte / "out" / "rte" / "seed-42") == result
    write_report([result], tmp_path)
    assert "rte on weather, 4 rows, seed 42: whole " in (tmp_path / "report.md").read_text()
    lines[0]["label"] = 1 - lines[0]["label"]
    elsewhere.write_text("\n".join(map(json.dumps, lines)))  # other rows by the same name
    (again,) = run_benchmark(request, ["rte"], rte / "out").results
    assert again.out_of_domain["weather"].content_hash != result.out_of_domain["weather"].content_hash


def test_rows_of_another_domain_are_checked_before_a_training(source, tmp_path):
    write_task(tmp_path, "super_glue", "rte")
    unlabelled = tmp_path / "unlabelled.json"
    unlabelled.write_text(json.dumps({"premise": "It rains.", "hypothesis": "It is wet.", "label": -1}))
    request, begun = request_of("super_glue", source, tmp_path, out_of_domain={"weather": unlabelled}), []
    with pytest.raises(ValueError, match="rte weather"):
        run_benchmark(request, ["rte"], tmp_path / "out", begun.append)
    unlabelled_test = request_of("super_glue", source, tmp_path, out_of_domain={"test": unlabelled})
    with pytest.raises(ValueError, match="'test' is a split of rte"):
        run_benchmark(unlabelled_test, ["rte"], tmp_path / "out", begun.append)
    with pytest.raises(ValueError, match="out_of_domain=weather has the columns of one task, and there is rte, cb"):
        run_benchmark(request, ["rte", "cb"], tmp_path / "out", begun.append)
    assert not begun


def test_folds_score_all_training_rows_of_which_none_are_held_out(tmp_path, source):
    folder = write_task(tmp_path, "glue", "stsb")
    for split in ("validation", "test"):
        (folder / f"{split}.parquet").unlink()
    run = run_benchmark(request_of("glue", source, tmp_path, folds=2, settings=UNTRAINED), ["stsb"], tmp_path / "out")
    assert [result.fold for result in run.results] == [0, 1]
    assert sum(result.rows["validation"] for result in run.results) == len(rows_of("glue", "stsb"))
    assert not (tmp_path / "out" / "stsb" / "seed-42-fold-0" / "supernet").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"folds": 1}, "folds=1: give at least 2, or 0"),
        ({"folds": -3}, "folds=-3: give at least 2, or 0"),
        ({"folds": 2, "out_of_domain": {"news": "news.csv"}}, "folds=2 keeps no supernets to measure on other texts"),
        ({"folds": 2, "robustness": True}, "folds=2 keeps no supernets to measure on other texts"),
    ],
)
def test_requests_that_cannot_be_met(changes, message):
    with pytest.raises(ValueError, match=message):
        BenchmarkRequest("glue", "x", **changes)


def test_folds_have_no_diagnostics(tmp_path, source):
    with pytest.raises(ValueError, match="axb is a diagnostic without training rows"):
        run_benchmark(request_of("super_glue", source, tmp_path, folds=2), ["rte", "axb"], tmp_path / "out")


def test_a_supernet_answers_again_what_it_answered_and_becomes_a_family(tmp_path, source):
    write_task(tmp_path, "glue", "mrpc")
    request = request_of("glue", source, tmp_path, held_out_fraction=0.4, robustness=True)
    (result,) = run_benchmark(request, ["mrpc"], tmp_path / "out").results
    folder = tmp_path / "out" / "mrpc" / "seed-42"
    again = answer_task(folder / "supernet", read_task(find_task("glue", "mrpc"), tmp_path))
    assert again.scores == result.scores and again.robustness() == result.robustness
    assert list(result.robustness) == ["typos", "case", "order"]
    assert result.robustness["case"] == result.scores["validation"]  # the tokenizer makes all letters small
    assert all(row["robust"].endswith("%") for row in score_table(size_scores([result])))
    for size, predictions in again.predictions["test"].items():
        kept = Predictions.load(folder / "predictions" / "test" / f"{size}.npz")
        assert kept.logits == pytest.approx(predictions.logits, abs=1e-5)
    stored = json.loads((folder / "supernet" / "post_processing.json").read_text())
    assert stored["half"]["threshold"] is not None and stored["half"]["temperature"] != 1.0
    supernet = load_elastic(folder / "supernet")
    family = export_family(supernet, load_tokenizer(folder / "supernet"), tmp_path / "family", sequence_length=64)
    member = AutoModelForSequenceClassification.from_pretrained(family.path / "half")
    assert member.config.preprocessing["task"] == "mrpc"


def test_the_body_of_another_task_is_taken_over_without_its_head(rte, source):
    write_task(rte / "rows", "super_glue", "cb")
    supernet = rte / "out" / "rte" / "seed-42" / "supernet"
    with pytest.raises(
        ValueError, match="has a head for the labels entailment, not_entailment, and cb has entailment"
    ):
        run_benchmark(request_of("super_glue", supernet, rte / "rows"), ["cb"], rte / "second")
    request = request_of("super_glue", supernet, rte / "rows", new_head=True, settings=UNTRAINED)
    run_benchmark(request, ["cb"], rte / "second")
    first, second = load_elastic(supernet), load_elastic(rte / "second" / "cb" / "seed-42" / "supernet")
    weights = first.base_model.state_dict()
    assert all(weights[name].equal(value) for name, value in second.base_model.state_dict().items())
    assert second.config.id2label == {0: "entailment", 1: "contradiction", 2: "neutral"}
    assert second.config.preprocessing["task"] == "cb"


def test_settings_come_from_the_request_then_the_task_then_all_tasks():
    request = BenchmarkRequest("glue", "x", settings={"cotrain_epochs": 1.0, "weight_decay": 0.1})
    settings = request.settings_for(find_task("glue", "cola"), seed=7)
    assert (settings.max_length, settings.cotrain_epochs, settings.batch_size, settings.seed) == (64, 1.0, 32, 7)
    assert settings.other_arguments == {"head_lr_multiplier": 5.0, "weight_decay": 0.1}
    assert settings.rank_examples > 0
    assert isinstance(settings, TrainingSettings)


def test_what_was_trained_here_is_in_order_and_what_only_names_sizes_is_not(rte_run, source):
    cola, supernet = find_task("glue", "cola"), rte_run / "out" / "rte" / "seed-42" / "supernet"
    for sizes in (None, {"whole": {}}):
        assert BenchmarkRequest("glue", str(source), sizes=sizes).settings_for(cola, 42).rank_examples == 256
        assert BenchmarkRequest("glue", str(supernet), sizes=sizes).settings_for(cola, 42).rank_examples == 0
    asked = BenchmarkRequest("glue", str(supernet), settings={"rank_examples": 8})
    assert asked.settings_for(cola, 42).rank_examples == 8


def test_a_request_is_the_same_once_json_gave_it_back(source):
    settings = {"layer_map": {1: 2}, "lr_scheduler_kwargs": {"steps": (1, 2)}}
    task = find_task("glue", "rte")
    data = read_task(task, {"train": Dataset.from_list(rows_of("glue", "rte"))}, validation_fraction=0.5)
    described = BenchmarkRequest("glue", str(source), settings=settings).described(task, 42, data)
    assert json.loads(json.dumps(described)) == described


def test_unknown_tasks_are_named():
    with pytest.raises(ValueError, match="glue has no task 'boolq'. 'boolq' is a task of super_glue.*cola"):
        run_benchmark(BenchmarkRequest("glue", "x"), ["boolq"], "unused")
