"""The whole way of every task, from its rows to the file for the server, and runs that stop, fail or change."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import transformers
from transformers import AutoModelForSequenceClassification

from hf_elastic.checkpoints import load_elastic, load_tokenizer
from hf_elastic.hub.exporting import export_family
from hf_elastic.recipes import TrainingSettings
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.benchmark_run import BenchmarkRequest, run_benchmark
from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task
from hf_elastic.tasks.predictions import Predictions
from hf_elastic.tasks.report import AVERAGE, score_table, size_scores, write_report
from hf_elastic.tasks.run_submission import submit
from hf_elastic.tasks.task_data import read_task
from hf_elastic.tasks.task_result import TaskResult
from hf_elastic.tasks.task_training import answer_task

from .benchmark_rows import real_rows, rows_of, write_task
from .tiny_tokenizers import wordpiece

SIZES = {"whole": {}, "half": {"depth": 0.5, "width": 0.5}}
SETTINGS = {
    "max_length": 64,
    "batch_size": 4,
    "finetune_epochs": 1.0,
    "cotrain_epochs": 1.0,
    "rank_examples": 4,
    "learning_rate": 1e-3,
}
TRAINED = [(b, name) for b, tasks in BENCHMARKS.items() for name, task in tasks.items() if task.model_of is None]


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """A random BERT with MiniLM's tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = wordpiece(minilm_checkpoint())
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return str(folder)


def request_of(benchmark, source, data, **changes):
    settings = {**SETTINGS, **changes.pop("settings", {})}
    return BenchmarkRequest(benchmark, source, data=data, sizes=SIZES, settings=settings, **changes)


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


def test_diagnostics_are_answered_by_the_model_of_their_task(tmp_path, source):
    for name in ("rte", "axb", "axg"):
        write_task(tmp_path, "super_glue", name)
    request = request_of("super_glue", source, tmp_path)
    run = run_benchmark(request, ["axb", "axg", "rte"], tmp_path / "out")
    assert [result.task for result in run.results] == ["rte", "axb", "axg"] and not run.failures
    assert set(run.results[2].scores["test"]["half"]) == {"accuracy", "gender_parity"}
    with pytest.raises(FileNotFoundError, match="axb is answered by a model of rte. There is no supernet in .*rte"):
        run_benchmark(request, ["axb"], tmp_path / "other")
    with pytest.raises(ValueError, match="axb is a diagnostic without training rows"):
        run_benchmark(request_of("super_glue", source, tmp_path, folds=2), ["axb"], tmp_path / "folds")


def test_a_run_goes_on_where_it_stopped_and_one_failure_does_not_stop_it(tmp_path, source):
    write_task(tmp_path, "glue", "rte")
    write_task(tmp_path, "glue", "stsb")
    request, begun = request_of("glue", source, tmp_path, seeds=(1, 2)), []
    first = run_benchmark(request, ["rte", "cola", "stsb"], tmp_path / "out", begun.append)
    assert begun == [f"{task}/seed-{seed}" for task in ("rte", "cola", "stsb") for seed in (1, 2)]
    assert len(first.results) == 4 and list(first.failures) == ["cola/seed-1", "cola/seed-2"]
    assert "no rows of cola" in (tmp_path / "out" / "cola" / "seed-1" / "error.txt").read_text()
    write_task(tmp_path, "glue", "cola")
    begun.clear()
    second = run_benchmark(request, ["rte", "cola", "stsb"], tmp_path / "out", begun.append)
    assert begun == ["cola/seed-1", "cola/seed-2"] and not second.failures and len(second.results) == 6
    assert not (tmp_path / "out" / "cola" / "seed-1" / "error.txt").exists()
    rows = write_report(second.results, tmp_path / "out")
    assert [row.task for row in rows if row.size == "half"] == ["rte", "cola", "stsb", AVERAGE]
    assert {row.number for row in rows} == {2} and rows[0].spread is not None
    report = (tmp_path / "out" / "report.md").read_text()
    assert "of rte, cola, stsb; sst2" in report and (tmp_path / "out" / "report.png").stat().st_size > 10_000


def test_a_result_of_other_settings_is_not_taken_for_this_one(tmp_path, source):
    write_task(tmp_path, "glue", "rte")
    run_benchmark(request_of("glue", source, tmp_path), ["rte"], tmp_path / "out")
    other = request_of("glue", source, tmp_path, settings={"learning_rate": 2e-3})
    with pytest.raises(ValueError, match="learning_rate=0.001, and now it is 0.002. Give another folder"):
        run_benchmark(other, ["rte"], tmp_path / "out")


def test_a_result_of_another_checkpoint_or_of_other_data_is_not_taken_for_this_one(tmp_path, source):
    for folder in ("one", "two"):
        write_task(tmp_path / folder, "glue", "rte")
    run_benchmark(request_of("glue", source, tmp_path / "one"), ["rte"], tmp_path / "out")
    with pytest.raises(ValueError, match="data='.*one', and now it is '.*two'"):
        run_benchmark(request_of("glue", source, tmp_path / "two"), ["rte"], tmp_path / "out")
    moved = shutil.copytree(source, tmp_path / "elsewhere" / Path(source).name)
    with pytest.raises(ValueError, match="source='.*', and now it is '.*elsewhere"):
        run_benchmark(request_of("glue", str(moved), tmp_path / "one"), ["rte"], tmp_path / "out")


def test_folds_score_all_training_rows(tmp_path, source):
    write_task(tmp_path, "glue", "stsb")
    run = run_benchmark(request_of("glue", source, tmp_path, folds=2), ["stsb"], tmp_path / "out")
    assert [result.fold for result in run.results] == [0, 1]
    assert sum(result.rows["validation"] for result in run.results) == len(rows_of("glue", "stsb"))
    assert not (tmp_path / "out" / "stsb" / "seed-42-fold-0" / "supernet").exists()


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


def test_the_body_of_another_task_is_taken_over_without_its_head(tmp_path, source):
    for name in ("mnli", "rte", "qnli"):
        write_task(tmp_path, "glue", name)
    run_benchmark(request_of("glue", source, tmp_path), ["mnli"], tmp_path / "first")
    mnli = str(tmp_path / "first" / "mnli" / "seed-42" / "supernet")
    with pytest.raises(ValueError, match="has a head for the labels entailment, neutral, contradiction, and rte has"):
        run_benchmark(request_of("glue", mnli, tmp_path), ["rte"], tmp_path / "second")
    untrained = {"finetune_epochs": 0.0, "cotrain_epochs": 0.0, "rank_examples": 0}
    request = request_of("glue", mnli, tmp_path, new_head=True, settings=untrained)
    run_benchmark(request, ["rte"], tmp_path / "second")
    first, second = load_elastic(mnli), load_elastic(tmp_path / "second" / "rte" / "seed-42" / "supernet")
    weights = first.base_model.state_dict()
    assert all(weights[name].equal(value) for name, value in second.base_model.state_dict().items())
    assert (
        second.config.id2label == {0: "entailment", 1: "not_entailment"}
        and second.config.preprocessing["task"] == "rte"
    )


def test_settings_come_from_the_request_then_the_task_then_all_tasks():
    request = BenchmarkRequest("glue", "x", settings={"cotrain_epochs": 1.0, "weight_decay": 0.1})
    settings = request.settings_for(find_task("glue", "cola"), seed=7)
    assert (settings.max_length, settings.cotrain_epochs, settings.batch_size, settings.seed) == (64, 1.0, 32, 7)
    assert settings.other_arguments == {"head_lr_multiplier": 5.0, "weight_decay": 0.1}
    assert settings.rank_examples > 0
    of_supernet = BenchmarkRequest("glue", "x", sizes=None)
    assert of_supernet.settings_for(find_task("glue", "cola"), 7).rank_examples == 0
    assert isinstance(settings, TrainingSettings)


def test_unknown_tasks_are_named():
    with pytest.raises(ValueError, match="glue has no task 'boolq'. 'boolq' is a task of super_glue.*cola"):
        run_benchmark(BenchmarkRequest("glue", "x"), ["boolq"], "unused")
