"""The checks pass on a training that works, fail for each way in which it would not, and leave nothing behind."""

import json
import random
import re

import numpy as np
import pytest
import torch

from hf_elastic import ElasticTrainer
from hf_elastic.training.preflight import check_training
from hf_elastic.training.preflight_checks import Preflight
from hf_elastic.training.preflight_report import CheckFailed, CheckResult, PreflightError, PreflightReport
from hf_elastic.training.preflight_trainings import check_checkpoint, check_duration, check_memory
from hf_elastic.training.trials import restored
from tests.conftest import TINY
from tests.training import preflight_worker
from tests.training.cases import accuracy, collate, make_learnable_rows, make_model, make_rows, make_trainer
from tests.training.launching import run_two_processes

NAMES = ["communication", "data", "sizes", "evaluation", "loss", "checkpoint", "memory", "duration"]


@pytest.fixture(autouse=True)
def one_thread():
    """Sums in another order would round in another way."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_checked_trainer(folder, settings=None, **keywords) -> ElasticTrainer:
    settings = {"per_device_train_batch_size": 8, "learning_rate": 1e-3, "num_train_epochs": 2, **(settings or {})}
    keywords = {"train_dataset": make_learnable_rows(48), "model": make_model("classification", 0.1), **keywords}
    return make_trainer(
        folder, settings=settings, compute_metrics=keywords.pop("compute_metrics", accuracy), **keywords
    )


def verdicts(report):
    return {result.name: result.verdict for result in report.results}


def snapshot(trainer):
    """Everything of a trainer that a training changes."""
    modules = [(vars(module).copy(), dict(module._forward_hooks)) for module in trainer.model.modules()]
    return {
        "weights": {name: value.clone() for name, value in trainer.model.state_dict().items()},
        "modules": modules,
        "config": trainer.model.config.to_dict(),
        "trainer": vars(trainer).copy(),
        "args": vars(trainer.args).copy(),
        "history": list(trainer.state.log_history),
        "callbacks": list(trainer.callback_handler.callbacks),
        "seed": torch.initial_seed(),
    }


def assert_unchanged(trainer, before):
    after = snapshot(trainer)
    for name, value in before.pop("weights").items():
        assert torch.equal(after["weights"][name], value), name
    assert {name: id(value) for name, value in after["trainer"].items()} == {
        name: id(value) for name, value in before.pop("trainer").items()
    }
    for (ours, our_hooks), (theirs, their_hooks) in zip(after["modules"], before.pop("modules"), strict=True):
        assert {name: id(value) for name, value in ours.items()} == {name: id(v) for name, v in theirs.items()}
        assert our_hooks == their_hooks
    assert {name: after[name] for name in before} == before


def test_a_training_that_works_passes_and_nothing_is_left_of_it(tmp_path):
    settings = {"metric_for_best_model": "tiny_accuracy", "weight_averaging": "ema", "activation_checkpointing": True}
    trainer = make_checked_trainer(tmp_path, settings)
    (tmp_path / "notes.txt").write_text("mine")
    before, states = snapshot(trainer), [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()]
    report = check_training(trainer, steps=6)
    assert verdicts(report) == {**dict.fromkeys(NAMES, "passed"), "communication": "skipped"}
    assert report.passed
    report.raise_if_failed()
    assert_unchanged(trainer, before)
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert not torch.are_deterministic_algorithms_enabled()

    assert json.loads(json.dumps(report.to_dict()))["checks"][0]["seen"] == "There is one process."
    assert report["data"].figures["rows"] == 48
    assert 0 <= report["evaluation"].figures["eval_tiny_accuracy"] <= 1
    losses = report["loss"].figures
    assert all(losses["after"][name] < losses["before"][name] for name in ("large", "base", "small", "tiny"))
    assert report["checkpoint"].figures["distance"] == 0
    assert report["duration"].figures["steps"] == 12
    assert [row["check"] for row in report.table()] == NAMES


def test_a_checked_training_is_the_one_without_a_check(tmp_path):
    trainers = [make_checked_trainer(tmp_path / name, {"max_steps": 3}) for name in ("checked", "other")]
    check_training(trainers[0], quick=True)
    with restored(trainers[0]):
        check_duration(Preflight(trainers[0], 2))
    for trainer in trainers:
        torch.manual_seed(0)
        trainer.train()
    for name, value in trainers[1].model.state_dict().items():
        assert torch.equal(trainers[0].model.state_dict()[name], value)


def test_checks_that_do_not_depend_on_a_failed_one_still_run(tmp_path):
    def fail(prediction):
        raise KeyError("probabilities")

    trainer = make_checked_trainer(tmp_path, {"learning_rate": 0.0}, compute_metrics=fail)
    before = snapshot(trainer)
    report = check_training(trainer, steps=2)
    assert_unchanged(trainer, before)
    assert [result.name for result in report.failures] == ["evaluation", "loss"]
    assert {verdicts(report)[name] for name in ("data", "sizes", "checkpoint", "memory", "duration")} == {"passed"}
    assert report["evaluation"].seen == "KeyError: 'probabilities'"
    assert "does not fall in 2 steps on one batch" in report["loss"].seen
    with pytest.raises(
        PreflightError, match=r"evaluation: KeyError.*loss: The loss of .*learning_rate=0\..*find_learn"
    ):
        report.raise_if_failed()


class Unchecked(torch.utils.data.Dataset):
    """Rows that the trainer does not look at before its training."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def with_row(row):
    return Unchecked([*make_rows("classification", 20), {"input_ids": [7, 8], "labels": 1, **row}])


def frozen():
    return make_model("classification").requires_grad_(False)


def not_finite():
    model = make_model("classification")
    with torch.no_grad():
        list(model.parameters())[7].view(-1)[3] = float("nan")
    return model


def collate_without_labels(rows):
    return {name: value for name, value in collate(rows).items() if name != "labels"}


def collate_half(rows):
    return {name: value[: len(value) // 2] for name, value in collate(rows).items()}


def collate_nothing(rows):
    raise IndexError("list index out of range")


@pytest.mark.parametrize(
    ("change", "check", "seen"),
    [
        ({"train_dataset": with_row({"labels": 3})}, "data", "labels=3, but there are 3 classes, from 0 to 2"),
        ({"train_dataset": with_row({"input_ids": [99]})}, "data", "token 99, but the model has vocab_size=99"),
        ({"train_dataset": with_row({"input_ids": []})}, "data", "A row has no tokens"),
        ({"data_collator": collate_nothing}, "data", "IndexError: list index out of range"),
        ({"data_collator": collate_without_labels}, "data", "have no labels: the collator gives input_ids, attention"),
        ({"data_collator": collate_half}, "sizes", "shape .* for 8 rows"),
        (
            {"train_dataset": with_row({"input_ids": [5] * 65})},
            "sizes",
            "The input has 65 tokens, the model 64 positi",
        ),
        ({"model": frozen()}, "sizes", "All weights are frozen"),
        ({"model": not_finite()}, "sizes", "The weight .* has values that are not finite"),
    ],
)
def test_what_stops_a_training_fails_and_what_needs_it_is_skipped(tmp_path, change, check, seen):
    assert TINY["max_position_embeddings"] == 64
    report = check_training(make_checked_trainer(tmp_path, **change))
    (failure,) = report.failures
    assert failure.name == check
    with pytest.raises(PreflightError, match=seen):
        report.raise_if_failed()
    assert failure.remedy
    later = NAMES[NAMES.index(check) + 1 :]
    assert {verdicts(report)[name] for name in later} == {"skipped"}
    assert report[later[-1]].seen in ("It needs sizes to pass.", "It needs data to pass.")


@pytest.mark.parametrize("case", ["masked_lm", "token_classification", "question_answering", "multiple_choice"])
def test_every_kind_of_head_passes_and_labels_of_other_classes_fail(tmp_path, case):
    report = check_training(make_trainer(tmp_path, case), quick=True)
    assert {verdicts(report)[name] for name in ("data", "sizes", "evaluation")} == {"passed"}
    assert len(report.results) == 4
    if case == "question_answering":
        return
    rows = make_rows(case, 4)
    rows[1]["labels"] = 99 if case == "multiple_choice" else [99] * len(rows[1]["labels"])
    report = check_training(make_trainer(tmp_path, case, train_dataset=Unchecked(rows)), quick=True)
    assert "labels=99, but there are" in report["data"].seen


def test_a_metric_that_no_evaluation_gives_fails(tmp_path):
    trainer = make_checked_trainer(tmp_path, {"metric_for_best_model": "small_f1"})
    report = check_training(trainer, quick=True)
    assert [result.name for result in report.failures] == ["evaluation"]
    assert "metric_for_best_model='small_f1' is not among the metrics: " in report["evaluation"].seen
    named = report["evaluation"].seen.partition("among the metrics: ")[2].rstrip(".").split(", ")
    scopes = ["", *(f"{size}_" for size in ("base", "large", "mean", "small", "tiny"))]
    assert sorted(named) == sorted(f"eval_{scope}{name}" for scope in scopes for name in ("accuracy", "loss"))


def test_several_evaluation_sets_and_none(tmp_path):
    splits = {"easy": make_rows("classification", 8), "hard": make_rows("classification", 40)}
    settings = {"metric_for_best_model": "hard_tiny_loss"}
    report = check_training(make_checked_trainer(tmp_path, settings, eval_dataset=splits), quick=True)
    assert report["evaluation"].seen.startswith("40 rows evaluated in 4 sizes. eval_hard_tiny_loss is ")
    report = check_training(make_checked_trainer(tmp_path, eval_dataset=None), quick=True)
    assert verdicts(report)["evaluation"] == "skipped"


def test_a_training_that_draws_from_a_generator_of_its_own_does_not_resume_exactly(tmp_path):
    generator = random.Random(0)

    def collate_with_noise(rows):
        return collate([{**row, "input_ids": [generator.randrange(5, 99) for _ in row["input_ids"]]} for row in rows])

    trainer = make_checked_trainer(tmp_path, data_collator=collate_with_noise)
    with pytest.raises(CheckFailed, match="has other weights than an unbroken one after step 4"):
        check_checkpoint(Preflight(trainer, 2))
    assert list(tmp_path.iterdir()) == []


def test_running_out_of_memory_is_a_fault_with_a_remedy(tmp_path):
    trainer = make_checked_trainer(tmp_path, train_dataset=make_learnable_rows(200))
    longest = max(len(row["input_ids"]) for row in trainer.train_dataset)
    trainer.compute_loss_func = preflight_worker.fail_above(rows=7)
    with pytest.raises(CheckFailed, match=f"8 rows of {longest} tokens runs out of memory") as caught:
        check_memory(Preflight(trainer, 2))
    assert "adapt_micro_batch_size=True" in caught.value.remedy


def test_a_training_that_its_budget_ends_is_told(tmp_path):
    trainer = make_checked_trainer(tmp_path, {"max_minutes": 1e-6, "num_train_epochs": 100})
    assert "600 steps of" in (seen := check_duration(Preflight(trainer, 2)).seen)
    assert "max_minutes=1e-06 ends it after 0% of them" in seen


def test_a_training_that_its_examples_end_is_as_long_as_they_last(tmp_path):
    trainer = make_checked_trainer(tmp_path, {"max_examples": 100, "gradient_accumulation_steps": 2})
    trainer.args.num_train_epochs = 100
    finding = check_duration(Preflight(trainer, 2))
    assert finding.figures["steps"] == 7  # of 16 examples
    assert finding.figures["seconds"] == pytest.approx(7 * finding.figures["seconds_per_step"])
    assert "max_examples=100 ends it after these of 300 steps" in finding.seen
    trainer.args.max_examples = 10_000
    assert "ends it" not in check_duration(Preflight(trainer, 2)).seen


GROWING = {"adapt_micro_batch_size": True, "keep_effective_batch": False, "max_examples": 96}
ADAPTING = {"adapt_num_random_subnets": True, "max_minutes": 60}
STOPPING = {"eval_strategy": "epoch", "metric_for_best_model": "loss", "early_stopping_min_gain": 0.1}
PINNED = {"memory_threshold": 1.0, "micro_batch_size": 4}


@pytest.mark.parametrize(
    "settings",
    [GROWING, {**GROWING, **PINNED}, ADAPTING, {**GROWING, **ADAPTING}, {**STOPPING, **ADAPTING, "max_examples": 8}],
    ids=["growing", "growing more", "subnet number", "both", "every end"],
)
def test_a_training_that_adapts_or_ends_early_passes(tmp_path, settings):
    trainer = make_checked_trainer(tmp_path, settings)
    before = snapshot(trainer)
    report = check_training(trainer, steps=6)
    assert verdicts(report) == {**dict.fromkeys(NAMES, "passed"), "communication": "skipped"}, report.failures
    assert report["checkpoint"].figures["distance"] == 0
    assert_unchanged(trainer, before)


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="steps=1 show no trend"):
        check_training(make_checked_trainer(tmp_path), steps=1)
    with pytest.raises(ValueError, match="no train_dataset"):
        check_training(make_checked_trainer(tmp_path, train_dataset=None))


def test_a_report_of_failures():
    passed, failed = (
        CheckResult("data", "passed", "fine"),
        CheckResult("loss", "failed", "It rises.", {}, "Wait.", 2.0),
    )
    report = PreflightReport((passed, failed))
    assert (report.passed, report.failures, report.seconds) == (False, (failed,), 2.0)
    assert report.to_dict()["checks"][1]["remedy"] == "Wait."
    with pytest.raises(PreflightError, match="The training is not ready. loss: It rises. Wait."):
        report.raise_if_failed()


def test_two_processes_agree(tmp_path):
    run_two_processes(preflight_worker.__file__, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["works"] == dict.fromkeys(NAMES, ["passed", True])
    assert first["other seeds"]["communication"] == ["failed", "Process 0: The seed of the processes differ."]
    assert first["bad rows in one"]["data"][0] == "failed"
    assert re.match("Process 1: A row has labels=[789], but there are 3", first["bad rows in one"]["data"][1])
