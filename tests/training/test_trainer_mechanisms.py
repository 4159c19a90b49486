"""Each mechanism of the co-training in a real step, against the same computed another way."""

import copy
import zlib

import pytest
import torch

from hf_elastic.training.layer_drop import drop_layers
from hf_elastic.training.shorter_inputs import shorten
from tests.training.cases import (
    NAMES,
    GradientRecorder,
    assert_same_gradients,
    collate,
    losses_of,
    make_model,
    make_rows,
    make_trainer,
    train,
)
from tests.training.teacher_cases import make_teacher

WHOLE = {"sampling": "joint", "max_steps": 1, "per_device_train_batch_size": 64, "learning_rate": 0.0}
PARTS = {**WHOLE, "per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}
TASK = {**WHOLE, "inplace_distillation": False}
FEATURES = {
    "cosine": {"hidden_loss": "cosine"},
    "embedding": {"hidden_weight": 0.0, "embedding_weight": 1.0},
    "attention": {"hidden_weight": 0.0, "attention_weight": 1.0},
    "relation": {"hidden_weight": 0.0, "relation_weight": 1.0},
    "relation heads": {"hidden_weight": 0.0, "relation_weight": 1.0, "relation_heads": 8, "layer_map": "last"},
    "map": {"layer_map": {1: 2, 4: 4}},
}


def only(name: str) -> dict[str, float]:
    return {other: float(other == name) for other in NAMES}


def gradients_of(tmp_path, **settings) -> dict[str, torch.Tensor]:
    return train(tmp_path, **settings)[1][0]


@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES)
def test_accumulation_changes_no_feature_loss(tmp_path, features):
    whole, expected = train(tmp_path, **WHOLE, **features, teacher=True)
    parts, actual = train(tmp_path, **PARTS, **features, teacher=True)
    assert_same_gradients(actual, expected)
    assert losses_of(parts)[0] == pytest.approx(losses_of(whole)[0], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", ["cosine", "attention", "relation", "relation heads"])
def test_a_model_has_no_distance_to_itself(tmp_path, name):
    model = make_model("classification")
    settings = {**WHOLE, **FEATURES[name], "inplace_distillation": False}
    trainer = make_trainer(tmp_path, model=model, teachers=[copy.deepcopy(model)], settings=settings)
    trainer.train()
    log = losses_of(trainer)[0]
    kinds = {key.removesuffix("_loss_large") for key in log if key.endswith("_loss_large")} - {"task"}
    assert len(kinds) == 2
    assert all(abs(log[f"{kind}_loss_large"]) < 1e-5 < log[f"{kind}_loss_tiny"] for kind in kinds)


def make_partly_labelled_rows() -> list[dict]:
    rows = make_rows("classification", 24)
    return [row if i % 3 else {**row, "labels": -100} for i, row in enumerate(rows)]


@pytest.mark.parametrize(
    "features", [*FEATURES.values(), {"hidden_loss": "contrastive"}], ids=[*FEATURES, "contrastive"]
)
def test_examples_without_a_class_contribute_nothing(tmp_path, features):
    rows, gradients = make_partly_labelled_rows(), []
    for data in (rows, [row for row in rows if row["labels"] != -100]):
        recorder, teachers = GradientRecorder(), [make_model("classification", layers=6, seed=5)]
        data = {"train_dataset": data, "teachers": teachers, "callbacks": [recorder]}
        make_trainer(tmp_path, settings={**WHOLE, **features}, **data).train()
        gradients.append(recorder.steps)
    assert_same_gradients(*gradients)


def test_a_batch_without_any_class_changes_nothing(tmp_path):
    rows = [{**row, "labels": -100} for row in make_rows("classification", 8)]
    recorder = GradientRecorder()
    settings = {**WHOLE, "relation_weight": 1.0, "attention_weight": 1.0, "embedding_weight": 1.0}
    trainer = make_trainer(tmp_path, settings=settings, train_dataset=rows, callbacks=[recorder])
    trainer.train()
    assert not any(gradient.any() for gradient in recorder.steps[0].values())
    assert set(losses_of(trainer)[0].values()) == {0}


@pytest.mark.parametrize("case", ["masked_lm", "question_answering", "multiple_choice"])
def test_relations_of_every_head(tmp_path, case):
    settings = {"relation_weight": 1.0, "embedding_weight": 0.1, "case": case}
    _, expected = train(tmp_path, **WHOLE, **settings)
    _, actual = train(tmp_path, **PARTS, **settings)
    assert_same_gradients(actual, expected)


def test_sizes_without_the_layers_of_a_map_still_compare_embeddings(tmp_path):
    settings = {**TASK, "layer_map": {3: 6}, "embedding_weight": 1.0}
    log = losses_of(train(tmp_path, **settings, teacher=True)[0])[0]
    assert {"hidden_loss_large", "embedding_loss_large", "embedding_loss_tiny"} <= log.keys()
    assert "hidden_loss_tiny" not in log  # it has the first layer alone


def test_features_with_activation_checkpointing(tmp_path):
    settings = {**WHOLE, "relation_weight": 1.0, "attention_weight": 1.0}
    _, expected = train(tmp_path, **settings)
    _, actual = train(tmp_path, **settings, activation_checkpointing=True)
    assert_same_gradients(actual, expected)


def test_temperature_follows_its_schedule(tmp_path):
    settings = {**WHOLE, "max_steps": 2, "hidden_weight": 0.0}
    losses = [
        [log["distillation_loss_tiny"] for log in losses_of(train(tmp_path, **settings, **temperature)[0])]
        for temperature in (
            {"temperature": 4.0, "temperature_end": 1.0, "temperature_schedule": "linear"},
            {"temperature": 4.0},
            {"temperature": 2.5},
        )
    ]
    scheduled, start, middle = losses
    assert scheduled == pytest.approx([start[0], middle[1]])


def test_a_detached_subnet_learns_from_the_task_alone(tmp_path):
    settings = {**WHOLE, "task_weight": 0.2, "distillation_weight": 0.8, "detachment_probability": 0.999999}
    detached = gradients_of(tmp_path, **settings)
    assert_same_gradients([detached], [gradients_of(tmp_path, **TASK)])
    trainer, _ = train(tmp_path, **settings)
    assert "distillation_loss_tiny" not in losses_of(trainer)[0]


def test_smaller_subnets_leave_the_core_alone(tmp_path):
    masked, plain = (gradients_of(tmp_path, **TASK, core_gradient_scale=scale) for scale in (0.0, 1.0))
    largest = gradients_of(tmp_path, **TASK, subnet_weights=only("large"))
    core = {name for name in plain if name.startswith("model.")}
    assert_same_gradients([{n: masked[n] for n in core}], [{n: largest[n] for n in core}])
    assert_same_gradients([{n: masked[n] for n in plain.keys() - core}], [{n: plain[n] for n in plain.keys() - core}])


@pytest.mark.parametrize("method", ["PCGrad", "UPGrad"])
@pytest.mark.parametrize("batches", [WHOLE, PARTS], ids=["whole", "parts"])
def test_gradient_surgery(tmp_path, method, batches):
    """The library's own aggregator on the matrix of all gradients."""
    aggregation = pytest.importorskip("torchjd.aggregation")
    batches = {**batches, "inplace_distillation": False}
    alone = [gradients_of(tmp_path, **batches, subnet_weights=only(name)) for name in NAMES]
    matrix = torch.stack([torch.cat([gradient.flatten() for gradient in each.values()]) for each in alone])
    torch.manual_seed(zlib.crc32(b"surgery-42-0"))
    expected = getattr(aggregation, method)()(matrix.double()) * (len(NAMES) if method == "UPGrad" else 1)
    actual = gradients_of(tmp_path, **batches, gradient_conflicts=method.lower())
    assert actual.keys() == alone[0].keys()
    together = torch.cat([gradient.flatten() for gradient in actual.values()])
    torch.testing.assert_close(together.double(), expected, rtol=1e-3, atol=1e-5)


def test_dropped_layers(tmp_path):
    actual = gradients_of(tmp_path, **TASK, layer_drop=0.5)
    model, batch = make_model("classification"), collate(make_rows("classification", 64))
    sizes = model.config.subnets
    kept = {name: drop_layers(sizes[name], model.config, 0.5, f"42-0-{name}") for name in NAMES}
    assert any(len(kept[name].layers) < len(sizes[name].layer_sizes(model.config)) for name in NAMES)
    sum(model(**batch, subnet=subnet).loss for subnet in kept.values()).backward()
    expected = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()}
    assert_same_gradients([actual], [expected])


@pytest.mark.parametrize("batches", [WHOLE, PARTS], ids=["whole", "parts"])
def test_shorter_inputs(tmp_path, batches):
    settings = {**batches, "subnet_max_lengths": {"small": 8, "tiny": 5}, "distillation_weight": 0.0}
    actual = gradients_of(tmp_path, **settings, hidden_weight=0.5)
    model, batch = make_model("classification"), collate(make_rows("classification", 64))
    large = model(**batch, output_hidden_states=True)
    total = large.loss
    for name, length, pairs in (("base", None, 4), ("small", 8, 2), ("tiny", 5, 1)):
        inputs = shorten(batch, length)
        student = model(**inputs, subnet=name, output_hidden_states=True)
        real = inputs["attention_mask"].bool()
        distances = [
            (student.hidden_states[i][real] - large.hidden_states[4 * i // pairs].detach()[:, :length][real]).square()
            for i in range(1, pairs + 1)
        ]
        total = total + student.loss + 0.5 * torch.stack([distance.mean() for distance in distances]).mean()
    total.backward()
    assert_same_gradients([actual], [{name: p.grad for name, p in model.named_parameters()}])


def test_sizes_that_lag_behind_count_more(tmp_path):
    settings = {**WHOLE, "max_steps": 2, "inplace_distillation": False}
    plain = losses_of(train(tmp_path, **settings)[0])
    weighted = losses_of(train(tmp_path, **settings, subnet_weighting="by_loss")[0])
    assert weighted[0] == pytest.approx(plain[0])
    mean = sum(plain[0][f"loss_{name}"] for name in NAMES) / len(NAMES)
    for name in NAMES:
        loss = plain[0][f"loss_{name}"]
        assert weighted[1][f"loss_{name}"] == pytest.approx(loss * loss / mean, rel=1e-4)


@pytest.mark.parametrize("mixing", ["weights", "confidence", "validation"])
def test_two_teachers_of_other_architectures(tmp_path, mixing):
    """What is logged is the divergence from the teachers' mean, weighed as the strategy says."""
    teachers = [make_teacher("Bert"), make_teacher("Electra", seed=9)]
    settings = {**WHOLE, "hidden_weight": 0.0, "inplace_distillation": False, "teacher_mixing": mixing}
    trainer = make_trainer(tmp_path, teachers=teachers, settings=settings)
    trainer.train()
    batch = collate(make_rows("classification", 64))
    labels = batch.pop("labels")
    with torch.no_grad():
        likelihoods = torch.stack([teacher(**batch).logits.softmax(dim=-1) for teacher in teachers])
        student = make_model("classification")(**batch).logits.log_softmax(dim=-1)
        weights = torch.ones(2, len(labels))
        if mixing == "confidence":
            weights = likelihoods[:, torch.arange(len(labels)), labels]
        if mixing == "validation":
            held_out = collate(make_rows("classification", 16, seed=1))
            weights = torch.stack([(-teacher(**held_out).loss).exp() for teacher in teachers])[:, None]
        target = (likelihoods * (weights / weights.sum(dim=0))[..., None]).sum(dim=0)
        expected = (target * (target.log() - student)).sum(dim=-1).mean()
    assert losses_of(trainer)[0]["distillation_loss_large"] == pytest.approx(expected.item(), rel=1e-4)


def test_the_largest_subnet_is_one_more_source(tmp_path):
    recorder = GradientRecorder()
    settings = {**WHOLE, "hidden_weight": 0.0, "task_weight": 0.0}
    teacher = make_teacher("Bert")
    trainer = make_trainer(tmp_path, teachers=[teacher], settings=settings, callbacks=[recorder])
    trainer.train()
    model, batch = make_model("classification"), collate(make_rows("classification", 64))
    batch.pop("labels")
    own = teacher(**batch).logits.detach().softmax(dim=-1)
    large = model(**batch).logits
    mean = (own + large.detach().softmax(dim=-1)) / 2
    total = -(own * large.log_softmax(dim=-1)).sum(dim=-1).mean()
    for name in NAMES[1:]:
        total = total - (mean * model(**batch, subnet=name).logits.log_softmax(dim=-1)).sum(dim=-1).mean()
    total.backward()
    assert_same_gradients(recorder.steps, [{name: p.grad for name, p in model.named_parameters()}])


EVERYTHING = {
    "sampling": "sandwich",
    "subnet_weighting": "by_loss",
    "subnet_max_lengths": {"tiny": 8},
    "core_gradient_scale": 0.5,
    "layer_drop": 0.2,
    "group_penalty": 1e-3,
    "detachment_probability": 0.2,
    "hidden_loss": "cosine",
    "relation_weight": 1.0,
    "attention_weight": 0.5,
    "embedding_weight": 0.1,
    "layer_map": "last",
    "temperature": 4.0,
    "temperature_end": 1.0,
    "temperature_schedule": "linear",
    "teacher_mixing": "validation",
    "layer_lr_decay": 0.9,
    "head_lr_multiplier": 5.0,
    "percentile_clipping": 50,
    "weight_averaging": "ema",
    "ema_decay": 0.9,
    "micro_batch_size": 3,
    "adapt_micro_batch_size": True,
    "max_examples": 1000,
    "on_bad_step": "skip",
    "statistics_steps": 2,
}


def test_everything_at_once_resumes_as_if_unbroken(tmp_path):
    """Dropout is on, and the teacher has another hidden size, so that a projection is learned as well."""

    def make(folder):
        settings = {
            "max_steps": 6,
            "save_strategy": "steps",
            "save_steps": 3,
            "eval_strategy": "steps",
            "eval_steps": 3,
            "learning_rate": 1e-3,
            "restore_callback_states_from_checkpoint": True,
            **EVERYTHING,
        }
        model = make_model("classification", dropout=0.2)
        return make_trainer(tmp_path / folder, model=model, teachers=[make_teacher("Bert")], settings=settings)

    whole = make("whole")
    whole.train()
    resumed = make("parts")
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert resumed.state.global_step == 6
    expected = whole.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.model.state_dict().items())
    assert resumed.evaluate()["eval_tiny_loss"] == whole.evaluate()["eval_tiny_loss"]
