"""The full model alone: trained as the plain trainer would, with every setting that is not about several sizes."""

import dataclasses

import pytest
import torch
from transformers import Trainer, TrainingArguments

from hf_elastic.training.distillation_arguments import DistillationArguments
from hf_elastic.training.family import train_family
from hf_elastic.training.finetuning import finetuning_arguments
from hf_elastic.training.parameter_groups import parameter_groups
from tests.training.cases import (
    accuracy,
    collate,
    make_arguments,
    make_fresh_model,
    make_learnable_rows,
    make_model,
    make_rows,
)

ROWS = make_learnable_rows(32)
# Not Adam, which makes large steps of gradients that are 0 but for rounding.
SETTINGS = {"per_device_train_batch_size": 8, "learning_rate": 0.05, "optim": "sgd"}


def weights_of(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def finetune_in_family(folder, model, settings, **keywords):
    """Weights after the fine-tuning of one epoch, and rows that ran at once in it."""
    rows, kept = [], {}
    hook = model.register_forward_pre_hook(
        lambda module, positional, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )

    def on_phase(name):
        if name == "co-train":
            hook.remove()
            kept.update(weights_of(model))

    args = make_arguments(folder, **{**SETTINGS, "max_steps": 1, **settings})
    keywords = {"train_dataset": ROWS, "data_collator": collate, "finetune_epochs": 1, **keywords}
    run = train_family(model, args, rank_examples=0, on_phase=on_phase, **keywords)
    assert set(run.model.config.subnets) == {"large", "base", "small", "tiny"}
    return kept, rows


def finetune_plainly(folder, model, optimizer=None, **settings):
    """The same by transformers alone."""
    args = TrainingArguments(
        str(folder), **SETTINGS, num_train_epochs=1, max_grad_norm=0.0, use_cpu=True, report_to="none", **settings
    )
    Trainer(model, args, collate, train_dataset=ROWS, optimizers=(optimizer, None)).train()
    return weights_of(model)


def assert_same_weights(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}")


def test_it_is_ordinary_training_of_the_full_model(tmp_path):
    """Although every mechanism of several sizes is on."""
    settings = {
        "subnet_weights": {"large": 3.0, "tiny": 2.0},
        "subnet_weighting": "by_loss",
        "subnet_max_lengths": {"large": 4, "base": 4, "small": 3, "tiny": 3},
        "core_gradient_scale": 0.5,
        "layer_drop": 0.5,
        "group_penalty": 1.0,
        "relation_weight": 1.0,
        "num_random_subnets": 2,
    }
    ours, _ = finetune_in_family(tmp_path, make_model("classification", 0.1), settings)
    assert_same_weights(ours, finetune_plainly(tmp_path, make_model("classification", 0.1)))


def test_micro_batches_change_what_runs_at_once_and_nothing_else(tmp_path):
    whole, rows = finetune_in_family(tmp_path, make_model("classification"), {})
    assert rows == [8] * 4
    ours, rows = finetune_in_family(tmp_path, make_model("classification"), {"micro_batch_size": 3})
    assert (max(rows), sum(rows)) == (3, len(ROWS))
    assert_same_weights(ours, whole)


def test_learning_rates_by_depth_hold(tmp_path):
    settings = {"layer_lr_decay": 0.5, "head_lr_multiplier": 4.0}
    ours, _ = finetune_in_family(tmp_path, make_model("classification"), settings)
    model = make_model("classification")
    groups = parameter_groups(model, make_arguments(tmp_path, **SETTINGS, **settings))
    assert_same_weights(ours, finetune_plainly(tmp_path, model, torch.optim.SGD(groups)))


def test_memory_that_runs_out_is_adapted_to(tmp_path):
    model = make_model("classification")
    full = []

    def fail_above_three(module, positional, inputs):
        full.append(len(inputs["input_ids"]))
        if full[-1] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    model.register_forward_pre_hook(fail_above_three, with_kwargs=True)
    ours, _ = finetune_in_family(tmp_path, model, {"adapt_micro_batch_size": True})
    assert full[:4] == [8, 4, 2, 2]
    assert_same_weights(ours, finetune_plainly(tmp_path, make_model("classification")))


def test_the_loss_and_the_optimizer_of_the_caller_are_used(tmp_path):
    def wrong(outputs, labels, num_items_in_batch=None):
        return (
            torch.nn.functional.cross_entropy(outputs.logits, (labels + 1) % 3, reduction="sum") / num_items_in_batch
        )

    given = {"compute_loss_func": wrong, "optimizer_cls_and_kwargs": (torch.optim.SGD, {"lr": 0.1})}
    settings = {"distillation_weight": 0.0, "hidden_weight": 0.0}
    ours, _ = finetune_in_family(tmp_path, make_model("classification"), settings, **given)
    model = make_model("classification")
    args = TrainingArguments(
        str(tmp_path), **SETTINGS, num_train_epochs=1, max_grad_norm=0.0, use_cpu=True, report_to="none"
    )
    Trainer(model, args, collate, train_dataset=ROWS, **given).train()
    assert_same_weights(ours, weights_of(model))


EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "loss"}


@pytest.mark.parametrize(
    "settings",
    [
        {**EVALUATED, "early_stopping_min_gain": 0.1},
        {**EVALUATED, "eval_on_start": True},
        {"on_bad_step": "rollback", "save_strategy": "steps", "save_steps": 1},
        {"adapt_micro_batch_size": True, "keep_effective_batch": False, "max_examples": 16, "max_steps": -1},
        {"max_examples": 8},
        {"max_minutes": 60, "adapt_num_random_subnets": True},
        {"push_to_hub": True, "hub_model_id": "someone/nothing"},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_what_belongs_to_the_common_training_does_not_end_or_break_it(tmp_path, settings):
    args = make_arguments(tmp_path, **{**SETTINGS, "max_steps": 2, **settings})
    finetuning = finetuning_arguments(args, 1.5)
    assert (finetuning.num_train_epochs, finetuning.max_steps, finetuning.push_to_hub) == (1.5, -1, False)
    if args.push_to_hub:
        return  # the common training has nowhere to push to
    model, passes, seen = make_fresh_model(), [], {}
    model.register_forward_pre_hook(lambda module, inputs: passes.append(module.training))
    data = {"train_dataset": ROWS, "eval_dataset": make_rows("classification", 8), "data_collator": collate}
    keywords = {"finetune_epochs": 1.5, "rank_examples": 0, "compute_metrics": accuracy}
    train_family(model, args, **data, **keywords, on_phase=lambda name: seen.update({name: list(passes)}))
    assert seen["co-train"] == [True] * 6  # steps of 8 rows in one and a half epochs of 32, and no evaluation
    assert not list(tmp_path.glob("fine-tune/checkpoint-*"))


def test_what_cannot_be_is_an_error_before_any_phase(tmp_path):
    phases = []
    args = make_arguments(tmp_path, **EVALUATED, lr_scheduler_type="reduce_lr_on_plateau")
    with pytest.raises(
        ValueError, match="neither evaluations nor checkpoints.*reduce_lr_on_plateau.*finetune_epochs=0"
    ):
        train_family(make_fresh_model(), args, ROWS, ROWS, finetune_epochs=1, on_phase=phases.append)
    assert phases == []


def test_the_other_settings_are_those_of_the_common_training(tmp_path):
    settings = {"layer_lr_decay": 0.9, "weight_averaging": "ema", "on_bad_step": "skip", "warmup_steps": 0.1}
    args = make_arguments(tmp_path, **settings, sampling="joint", hidden_loss="cosine")
    finetuning = finetuning_arguments(args, 2)
    assert {name: getattr(finetuning, name) for name in settings} == settings
    defaults = {field.name: field.default for field in dataclasses.fields(DistillationArguments)}
    assert {name: getattr(finetuning, name) for name in defaults} == {**defaults, "hidden_weight": 0.0}
