"""Training with weights that are split between two processes, and what cannot be trained so."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForSequenceClassification
from transformers.distributed import DistributedConfig

import hf_elastic
from hf_elastic.modeling.layers_elastic import ElasticLayer
from hf_elastic.training.arguments import ElasticTrainingArguments
from hf_elastic.training.sharding import check_sharding, check_tied_weights, fill_gradients
from tests.training import sharding_worker
from tests.training.cases import (
    GradientRecorder,
    assert_same_gradients,
    collate,
    make_model,
    make_rows,
    make_trainer,
    train,
)
from tests.training.distributed_worker import in_two_processes
from tests.training.launching import launch_two_processes, run_two_processes

STEPS = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.05, "weight_decay": 0.1, "optim_args": "momentum=0.9"}
RUNS: dict[str, dict[str, Any]] = {
    "sandwich": {**STEPS, "sampling": "sandwich"},
    "joint": {**STEPS, "sampling": "joint", "activation_checkpointing": True},
    # Steps that leave layers out altogether.
    "one_per_step": {**STEPS, "max_steps": 3, "sampling": "one_per_step", "layer_drop": 0.3},
    "masked_lm": {**STEPS, "case": "masked_lm", "relation_weight": 1.0},  # tied weights
    "limits": {**STEPS, "adaptive_clipping": 0.02, "micro_batch_size": 3, "layer_lr_decay": 0.5},
}


@pytest.fixture(scope="module")
def split_between_two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """All runs, in one start of two processes, and the folder of what they saved."""
    folder = tmp_path_factory.mktemp("split")
    (folder / "runs.json").write_text(json.dumps({name: in_two_processes(run) for name, run in RUNS.items()}))
    run_two_processes(sharding_worker.__file__, folder)
    return folder, torch.load(folder / "results.pt", weights_only=True)


@pytest.mark.parametrize("name", RUNS)
def test_a_split_model_trains_as_a_whole_one(split_between_two, tmp_path, name):
    actual = split_between_two[1][name]
    batches = {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 16}
    expected = sharding_worker.run(tmp_path, {**RUNS[name], **batches})
    assert (actual["part"], expected["part"]) == (0.5, 1.0)
    assert_same_gradients(actual["gradients"], expected["gradients"])
    for ours, theirs in zip(actual["losses"], expected["losses"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    for key, value in actual["weights"].items():
        torch.testing.assert_close(value, expected["weights"][key], rtol=1e-4, atol=1e-5)
    assert actual["metrics"] == pytest.approx(expected["metrics"], rel=1e-4)


def test_what_it_saves_is_an_ordinary_supernet(split_between_two):
    folder, results = split_between_two
    saved = folder / "sandwich" / "saved"
    model = AutoModelForSequenceClassification.from_pretrained(saved)
    for name, value in model.named_parameters():
        assert torch.equal(value, results["sandwich"]["weights"][name])
    batch = collate(make_rows("classification", 8))
    member = hf_elastic.extract(model, "small")
    assert member.config.num_hidden_layers == 2
    torch.testing.assert_close(member(**batch).logits, model(**batch, subnet="small").logits)


def test_layers_inside_of_another_module(tmp_path):
    """As the activation checkpointing of accelerate's FSDP puts them."""
    settings = {**STEPS, "relation_weight": 1.0, "per_device_train_batch_size": 16}
    _, expected = train(tmp_path, **settings)
    model, recorder = make_model("classification"), GradientRecorder()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, ElasticLayer))
    make_trainer(tmp_path, settings=settings, model=model, callbacks=[recorder]).train()
    actual = [{n.replace("._checkpoint_wrapped_module", ""): g for n, g in step.items()} for step in recorder.steps]
    assert_same_gradients(actual, expected)


@pytest.mark.parametrize(
    "setting",
    [
        {"core_gradient_scale": 0.5},
        {"gradient_conflicts": "pcgrad"},
        {"group_penalty": 0.1},
        {"adapt_micro_batch_size": True},
        {"weight_averaging": "ema"},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_settings_that_need_whole_weights(tmp_path, setting):
    ((name, value),) = setting.items()
    with pytest.raises(ValueError, match=f"{name}={value!r} does not work with FSDP.*or train with DDP"):
        check_sharding(ElasticTrainingArguments(str(tmp_path), **setting))


@pytest.mark.parametrize("setting", [{"layer_drop": 0.1}, {"sampling": "one_per_step"}], ids=["drop", "sampling"])
def test_zero_3_needs_every_layer_in_every_step(tmp_path, setting):
    args = ElasticTrainingArguments(str(tmp_path), **setting)
    check_sharding(args, stage=2)
    with pytest.raises(ValueError, match=f"{next(iter(setting))}=.*gradients of an earlier step.*ZeRO-2"):
        check_sharding(args, stage=3)


def test_projections_need_whole_weights(tmp_path):
    args = ElasticTrainingArguments(str(tmp_path))
    check_sharding(args)
    with pytest.raises(ValueError, match="hidden_weight=0.1.*another hidden size.*Give 0"):
        check_sharding(args, has_projections=True)


def test_tied_weights_that_cannot_be_split_evenly():
    model = make_model("masked_lm")
    check_tied_weights(model)
    model.config.distributed_config = DistributedConfig(fsdp_size=3)
    check_tied_weights(model)
    model.config.distributed_config = DistributedConfig(fsdp_size=2)
    with pytest.raises(
        ValueError, match="word_embeddings.weight, and fsdp_size=2 does not divide its 99 rows.*divisor"
    ):
        check_tied_weights(model)
    untied = make_model("masked_lm", tie_word_embeddings=False)
    untied.config.distributed_config = DistributedConfig(fsdp_size=2)
    check_tied_weights(untied)


def test_missing_gradients_become_zero():
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    weights[0].grad = torch.full((2,), 3.0)
    weights[1].requires_grad_(False)
    fill_gradients(weights)
    assert weights[0].grad.tolist() == [3.0, 3.0]
    assert weights[1].grad is None
    assert weights[2].grad.tolist() == [0.0, 0.0]


# Environment, arguments, and what the error says.
SILENT = {
    "launcher, FSDP": ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}, {}, "FSDP was asked for.*fsdp_size"),
    "arguments, FSDP": ({}, {"fsdp": True}, "FSDP was asked for.*fsdp_size"),
    "launcher, DeepSpeed": (
        {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_USE_CPU": "true", "DS_ACCELERATOR": "cpu"},
        {},
        "DeepSpeed was asked for.*DS_ACCELERATOR=cpu, but not ACCELERATE_USE_CPU",
    ),
    "two processes as one": ({"CUDA_VISIBLE_DEVICES": ""}, {"use_cpu": False}, "2 processes run.*use_cpu=True"),
}
SILENT_SCRIPT = """
import json, sys
import torch
from tests.training.cases import make_trainer
torch.distributed.init_process_group("gloo")
make_trainer(sys.argv[1], settings=json.loads(sys.argv[2])).train()
"""


@pytest.mark.parametrize(
    "case",
    [case if case == "launcher, FSDP" else pytest.param(case, marks=pytest.mark.slow) for case in SILENT],
)
def test_what_accelerate_would_silently_do_instead_is_an_error(tmp_path, case):
    """In two processes on the CPU."""
    if "DeepSpeed" in case and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("needs pip install deepspeed; without it, transformers says so")
    variables, settings, message = SILENT[case]
    script = tmp_path / "silent.py"
    script.write_text(SILENT_SCRIPT)
    output = str(tmp_path / "output")
    result = launch_two_processes(str(script), output, json.dumps(settings), log_dir=tmp_path / "log", **variables)
    assert result.returncode != 0
    assert re.search(f"ValueError: {message}", result.stderr), result.stderr[-4000:]
    assert not (tmp_path / "output").exists()
