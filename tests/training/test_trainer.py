"""The trainer against independent computations and against the stock Trainer, on tiny models."""

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, DistilBertConfig, DistilBertForSequenceClassification

from hf_elastic import ElasticTrainer, SubnetConfig
from tests.training.cases import (
    CASES,
    NAMES,
    GradientRecorder,
    accuracy,
    assert_same_gradients,
    collate,
    losses_of,
    make_arguments,
    make_fresh_model,
    make_learnable_rows,
    make_model,
    make_rows,
    make_trainer,
    train,
)


def expected_gradients(model: torch.nn.Module, rows: list[dict[str, Any]], temperature: float) -> dict:
    """One graph through all subnets of a classifier, with the losses written out."""
    batch = collate(rows)
    real = batch["attention_mask"].bool()
    outputs = {name: model(**batch, subnet=name, output_hidden_states=True) for name in NAMES}
    teacher = outputs["large"]
    soft_labels = (teacher.logits.detach() / temperature).softmax(-1)
    total = outputs["large"].loss
    for name in NAMES[1:]:
        student = outputs[name]
        cross_entropy = -(soft_labels * (student.logits / temperature).log_softmax(-1)).sum(-1).mean()
        depth = len(student.hidden_states) - 1
        pairs = {4: [1, 2, 3, 4], 2: [2, 4], 1: [4]}[depth]
        distances = [
            F.mse_loss(student.hidden_states[i + 1][real], teacher.hidden_states[j][real].detach())
            for i, j in enumerate(pairs)
        ]
        hidden = sum(distances) / depth
        weight = 0.5 if name == "tiny" else 1.0
        # The entropy of the soft labels, which cross entropy has and KL divergence has not, gives no gradient.
        total = total + weight * (0.7 * student.loss + 0.3 * temperature**2 * cross_entropy + 0.2 * hidden)
    total.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("activation_checkpointing", [False, True])
def test_step_is_the_gradient_of_the_joint_loss(tmp_path, activation_checkpointing):
    trainer, steps = train(
        tmp_path,
        sampling="joint",
        max_steps=1,
        per_device_train_batch_size=64,
        task_weight=0.7,
        distillation_weight=0.3,
        hidden_weight=0.2,
        temperature=2.0,
        subnet_weights={"tiny": 0.5},
        activation_checkpointing=activation_checkpointing,
    )
    expected = expected_gradients(make_model("classification"), make_rows("classification", 64), temperature=2.0)
    assert_same_gradients(steps, [expected])


@pytest.mark.parametrize("teacher", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_accumulation_changes_neither_gradients_nor_losses(tmp_path, case, teacher):
    """Batch 32 against 8 x 4; two steps with the same weights."""
    settings = {"sampling": "joint", "max_steps": 2, "learning_rate": 0.0, "temperature": 2.0, "teacher": teacher}
    whole, expected = train(tmp_path, case, per_device_train_batch_size=32, **settings)
    parts, actual = train(tmp_path, case, per_device_train_batch_size=8, gradient_accumulation_steps=4, **settings)
    assert_same_gradients(actual, expected)
    for ours, theirs in zip(losses_of(parts), losses_of(whole), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("settings", [{"label_smoothing_factor": 0.1}, {"average_tokens_across_devices": False}])
def test_accumulation_with_other_settings_of_the_parent(tmp_path, settings):
    settings = {"sampling": "joint", "max_steps": 1, **settings}
    _, expected = train(tmp_path, per_device_train_batch_size=32, **settings)
    _, actual = train(tmp_path, per_device_train_batch_size=8, gradient_accumulation_steps=4, **settings)
    assert_same_gradients(actual, expected)


def test_the_last_part_of_an_epoch_counts_its_own_examples(tmp_path):
    """20 examples as 8 + 8 and 4: the second step has half a batch, and divides by it."""
    rows = make_rows("classification", 20)
    gradients = []
    for settings in ({"per_device_train_batch_size": 16}, {"gradient_accumulation_steps": 4}):
        recorder = GradientRecorder()
        settings = {"per_device_train_batch_size": 4, "num_train_epochs": 1, "learning_rate": 0.0, **settings}
        make_trainer(tmp_path, train_dataset=rows, callbacks=[recorder], settings=settings).train()
        gradients.append(recorder.steps)
    assert_same_gradients(*gradients)


def test_teachers_stay_as_they_are(tmp_path):
    teacher = make_model("classification", dropout=0.3, layers=6, seed=5).train()
    before = copy.deepcopy(teacher.state_dict())
    trainer = make_trainer(
        tmp_path, teachers=[teacher], settings={"max_steps": 2, "save_strategy": "steps", "save_steps": 2}
    )
    trainer.train()
    assert not teacher.training and not any(parameter.requires_grad for parameter in teacher.parameters())
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    optimized = {id(parameter) for group in trainer.optimizer.param_groups for parameter in group["params"]}
    assert not optimized & {id(parameter) for parameter in teacher.parameters()}
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "checkpoint-2")
    assert saved.state_dict().keys() == trainer.model.state_dict().keys()


def test_teacher_need_not_know_all_inputs(tmp_path):
    """DistilBERT has no token types."""

    def collate_with_types(rows):
        batch = collate(rows)
        return {**batch, "token_type_ids": torch.ones_like(batch["input_ids"])}

    config = DistilBertConfig(vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64, num_labels=3)
    teachers = [DistilBertForSequenceClassification(config)]
    trainer = make_trainer(tmp_path, teachers=teachers, data_collator=collate_with_types, settings={"max_steps": 1})
    trainer.train()
    assert losses_of(trainer)[0]["distillation_loss_large"] > 0


def test_every_parameter_has_a_gradient_although_the_subnet_leaves_some_out(tmp_path):
    """So that momentum and weight decay act on all, as they do with several processes."""
    settings = {"sampling": "one_per_step", "max_steps": 4, "learning_rate": 0.0, "per_device_train_batch_size": 4}
    trainer, steps = train(tmp_path, **settings)
    assert len({trainer.sampler.draw(step)[0] for step in range(4)}) > 1
    assert all(step.keys() == {name for name, _ in trainer.model.named_parameters()} for step in steps)


def test_distillation_weight_follows_its_schedule(tmp_path):
    settings = {
        "max_steps": 4,
        "learning_rate": 0.0,
        "hidden_weight": 0.0,
        "distillation_weight": 1.0,
        "distillation_weight_end": 0.0,
        "distillation_schedule": "linear",
    }
    trainer, _ = train(tmp_path, **settings)
    weights = [
        (log["loss_tiny"] - log["task_loss_tiny"]) / log["distillation_loss_tiny"] for log in losses_of(trainer)
    ]
    assert weights == pytest.approx([1.0, 0.75, 0.5, 0.25], rel=1e-3)


def test_without_references_only_the_task_is_trained(tmp_path):
    trainer, _ = train(tmp_path, max_steps=1, sampling="joint", inplace_distillation=False)
    assert losses_of(trainer)[0].keys() == {"loss", *(f"loss_{name}" for name in NAMES)}


def test_logged_losses_are_means_over_the_steps_that_ran_a_subnet(tmp_path):
    settings = {"sampling": "one_per_step", "max_steps": 12, "learning_rate": 0.0, "per_device_train_batch_size": 64}
    per_step, _ = train(tmp_path, logging_steps=1, **settings)
    together, _ = train(tmp_path, logging_steps=12, **settings)
    (log,) = losses_of(together)
    for name in NAMES:
        values = [step[f"loss_{name}"] for step in losses_of(per_step) if f"loss_{name}" in step]
        assert log[f"loss_{name}"] == pytest.approx(sum(values) / len(values))


def test_logs_of_a_second_training_are_its_own(tmp_path):
    settings = {"max_steps": 2, "learning_rate": 0.0, "logging_steps": 2, "per_device_train_batch_size": 64}
    trainer, _ = train(tmp_path, **settings)
    (first,) = losses_of(trainer)
    trainer.args.logging_steps = 5
    trainer.train()  # logs nothing but its summary
    trainer.args.logging_steps = 2
    trainer.train()
    assert losses_of(trainer)[-1] == pytest.approx(first)


def test_own_logs_are_left_alone(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.log({"loss": 1.0})
    assert losses_of(trainer) == [{"loss": 1.0}]


def test_data_without_a_length(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from make_rows("classification", 20)

    trainer = make_trainer(tmp_path, train_dataset=Stream(), eval_dataset=Stream(), settings={"max_steps": 3})
    trainer.train()
    assert len(losses_of(trainer)) == 3
    assert "eval_tiny_loss" in trainer.evaluate()


def test_full_model_is_trained_although_it_has_no_name(tmp_path):
    model = make_model("classification")
    model.config.subnets = {name: model.config.subnets[name] for name in ("base", "tiny")}
    recorder = GradientRecorder()
    trainer = make_trainer(tmp_path, model=model, callbacks=[recorder], settings={"max_steps": 1, "sampling": "joint"})
    trainer.train()
    assert losses_of(trainer)[0].keys() >= {"loss_supernet", "loss_base", "loss_tiny"}
    assert recorder.steps[0]["model.layers.3.mlp.up_proj.weight"][-1].abs().sum() > 0
    metrics = trainer.evaluate()
    assert "eval_supernet_loss" not in metrics
    assert metrics["eval_mean_loss"] == pytest.approx((metrics["eval_base_loss"] + metrics["eval_tiny_loss"]) / 2)


def test_bf16_autocast_is_close_to_float32(tmp_path):
    exact, _ = train(tmp_path, max_steps=2, teacher=True)
    rounded, _ = train(tmp_path, max_steps=2, teacher=True, bf16=True)
    for ours, theirs in zip(losses_of(rounded), losses_of(exact), strict=True):
        assert ours.keys() == theirs.keys()
        assert ours == pytest.approx(theirs, rel=0.05, abs=0.01)
        assert ours != theirs


@pytest.mark.parametrize("target", [["pooler.dense"], ["q_proj", "v_proj", "up_proj"]])
def test_adapters(tmp_path, target):
    """Of the pooler for any sizes, and of projections for sizes of fewer layers."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=target, r=2, lora_dropout=0.0)
    model = make_model("classification")
    if "q_proj" in target:
        model.config.subnets = {"large": SubnetConfig(), "tiny": SubnetConfig(layers=(0, 3))}
    model = peft.get_peft_model(model, config)
    recorder = GradientRecorder()
    trainer = make_trainer(tmp_path, model=model, callbacks=[recorder], settings={"max_steps": 1})
    trainer.train()
    assert recorder.steps[0].keys() == {name for name, p in model.named_parameters() if p.requires_grad}
    assert {"eval_loss", "eval_tiny_loss"} <= trainer.evaluate().keys()


def test_checkpoint_reloads_with_its_subnets(tmp_path):
    trainer, _ = train(tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    reloaded, info = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "checkpoint-2", output_loading_info=True
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert reloaded.config.subnets == trainer.model.config.subnets
    batch = collate(make_rows("classification", 4))
    trainer.model.eval()
    for name in NAMES:
        assert torch.equal(reloaded.eval()(**batch, subnet=name).logits, trainer.model(**batch, subnet=name).logits)


def test_training_makes_all_sizes_better(tmp_path):
    rows = make_learnable_rows(128)
    trainer = make_trainer(
        tmp_path,
        model=make_fresh_model(),
        train_dataset=rows,
        eval_dataset=rows,
        compute_metrics=accuracy,
        settings={"num_train_epochs": 25, "learning_rate": 3e-3, "per_device_train_batch_size": 32},
    )
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    for name in NAMES:
        assert before[f"eval_{name}_accuracy"] < 0.6
        assert after[f"eval_{name}_accuracy"] > 0.95


def test_model_init(tmp_path):
    arguments = make_arguments(tmp_path, max_steps=1)
    trainer = ElasticTrainer(
        args=arguments,
        model_init=lambda: make_model("classification"),
        train_dataset=make_rows("classification", 8),
        data_collator=collate,
    )
    trainer.train()
    assert losses_of(trainer)


def test_names_of_losses_are_not_mixed_up(tmp_path):
    model = make_model("classification")
    subnets = model.config.subnets
    model.config.subnets = {"large": subnets["large"], "small": subnets["small"], "small_task": subnets["tiny"]}
    trainer = make_trainer(tmp_path, model=model, settings={"max_steps": 1, "sampling": "joint"})
    trainer.train()
    parts = [f"{kind}_loss_{name}" for name in ("small", "small_task") for kind in ("task", "distillation", "hidden")]
    assert losses_of(trainer)[0].keys() == {"loss", "loss_large", "loss_small", "loss_small_task", *parts}


def test_a_step_without_a_label_has_no_loss_but_what_hidden_states_give(tmp_path):
    rows = [{**row, "labels": [-100] * len(row["labels"])} for row in make_rows("masked_lm", 8)]
    recorder = GradientRecorder()
    settings = {"max_steps": 1, "sampling": "joint"}
    trainer = make_trainer(tmp_path, "masked_lm", settings, train_dataset=rows, callbacks=[recorder])
    trainer.train()
    losses = losses_of(trainer)[0]
    assert losses["loss_large"] == losses["task_loss_tiny"] == losses["distillation_loss_tiny"] == 0
    assert losses["loss_tiny"] == pytest.approx(0.1 * losses["hidden_loss_tiny"])
    assert all(torch.isfinite(gradient).all() for gradient in recorder.steps[0].values())


def test_subnets_that_are_named_later_are_trained_and_evaluated(tmp_path):
    trainer = make_trainer(tmp_path, settings={"max_steps": 1, "sampling": "joint"})
    trainer.model.config.subnets = {"half": SubnetConfig(layers=(0, 3))}
    trainer.train()
    assert losses_of(trainer)[0].keys() >= {"loss_supernet", "loss_half"}
    assert "loss_large" not in losses_of(trainer)[0]
    trainer.model.config.subnets["one"] = SubnetConfig(layers=(0,))
    metrics = trainer.evaluate()
    assert {"eval_half_loss", "eval_one_loss"} <= metrics.keys()
    assert "eval_tiny_loss" not in metrics
    assert trainer.sampler.draw(0) == ["supernet", "half", "one"]


def test_subnets_that_do_not_fit_the_training_any_more(tmp_path):
    trainer = make_trainer(tmp_path, settings={"max_steps": 1, "subnet_weights": {"tiny": 0.5}})
    trainer.model.config.subnets = {"half": SubnetConfig(layers=(0, 3))}
    with pytest.raises(ValueError, match="'tiny', which is no subnet of the model. It has supernet, half"):
        trainer.train()
    trainer.model.config.subnets = {}
    with pytest.raises(ValueError, match="subnets is empty"):
        trainer.train()


def test_model_init_may_name_other_subnets(tmp_path):
    names = iter(["first", "second"])

    def model_init():
        model = make_model("classification")
        model.config.subnets = {next(names): model.config.subnets["tiny"]}
        return model

    data = {"train_dataset": make_rows("classification", 8), "eval_dataset": make_rows("classification", 4)}
    arguments = make_arguments(tmp_path, max_steps=1)
    trainer = ElasticTrainer(args=arguments, model_init=model_init, data_collator=collate, **data)
    assert list(trainer.subnets) == ["first", "supernet"]
    trainer.train()
    assert losses_of(trainer)[0].keys() >= {"loss_second", "loss_supernet"}
    assert "eval_second_loss" in trainer.evaluate()


def test_subnets_of_the_config_may_be_settings(tmp_path):
    model = make_model("classification")
    model.config.subnets = {"half": {"num_attention_heads": 2, "intermediate_size": 32}}
    trainer = make_trainer(tmp_path, model=model)
    assert trainer.subnets == {
        "half": SubnetConfig(num_attention_heads=2, intermediate_size=32),
        "supernet": SubnetConfig(),
    }
