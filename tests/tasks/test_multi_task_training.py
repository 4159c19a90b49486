"""Several tasks trained on one encoder: the model, its steps, and what comes out."""

import json
import tempfile

import pytest
import torch
from transformers import DataCollatorForMultipleChoice, TrainerCallback

from hf_elastic import ElasticTrainingArguments, SubnetConfig
from hf_elastic.checkpoints import load_elastic, load_supernet_with_new_head, load_tokenizer
from hf_elastic.recipes import TrainingSettings
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.encoding import collator_for, encode_split
from hf_elastic.tasks.multi_task_model import MultiTaskModel
from hf_elastic.tasks.multi_task_trainer import MultiTaskCollator, MultiTaskTrainer
from hf_elastic.tasks.multi_task_training import train_on_tasks
from hf_elastic.tasks.task_data import read_task
from hf_elastic.tasks.task_mixture import Mixing, TaskMixture
from hf_elastic.tasks.task_run import answer_task

from .benchmark_rows import write_task
from .tiny_runs import SIZES, save_model

TASKS = [("glue", "stsb"), ("glue", "mnli"), ("super_glue", "copa"), ("super_glue", "record")]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A random BERT, with dropout."""
    torch.manual_seed(0)
    return save_model(tmp_path_factory.mktemp("bert"), minilm_checkpoint())


@pytest.fixture(scope="module")
def model(source):
    torch.manual_seed(1)
    pretrained = load_supernet_with_new_head(source)
    model = MultiTaskModel(pretrained.config, [find_task(*task) for task in TASKS])
    model.base_model.load_state_dict(pretrained.base_model.state_dict())
    return model.eval()


def batch_of(number, choices=None):
    """Two examples of a task."""
    shape = (2, 7) if choices is None else (2, choices, 7)
    ids = torch.randint(100, 2000, shape, generator=torch.Generator().manual_seed(number))
    mask = torch.ones_like(ids)
    mask[-1, ..., 5:] = 0
    labels = torch.tensor([0.5, 4.0]) if number == 0 else torch.tensor([1, 0])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels, "task": torch.full((2,), number)}


@pytest.mark.parametrize("subnet", [None, SubnetConfig(layers=(0,), num_attention_heads=1)])
@pytest.mark.parametrize("number", range(len(TASKS)))
def test_a_task_is_computed_as_by_its_own_model(model, number, subnet):
    batch = batch_of(number, choices=2 if TASKS[number][1] == "copa" else None)
    alone = model.of_task(number)
    assert alone.config.num_labels == find_task(*TASKS[number]).labels.num_labels
    expected = alone(**{name: value for name, value in batch.items() if name != "task"}, subnet=subnet)
    found = model(**batch, subnet=subnet)
    torch.testing.assert_close(found.logits, expected.logits)
    torch.testing.assert_close(found.loss, expected.loss)
    part = model(**batch, subnet=subnet, num_items_in_batch=4).loss
    torch.testing.assert_close(part, expected.loss / 2)


def test_a_batch_reaches_the_head_of_its_task_alone(model):
    model.zero_grad()
    model(**batch_of(1)).loss.backward()
    rows = model.classifier.weight.grad.abs().sum(dim=-1)
    assert (rows > 0).tolist() == [False, True, True, True, False, False, False]
    model.zero_grad()


def test_mixed_batches_are_refused(model):
    batch = batch_of(1)
    with pytest.raises(ValueError, match=r"a batch is of one task"):
        model(**{**batch, "task": torch.tensor([1, 3])})
    with pytest.raises(ValueError, match=r"task=None"):
        model(**{**batch, "task": None})


@pytest.fixture
def data(tmp_path):
    def read(*tasks):
        for task in tasks:
            if not (tmp_path / "rows" / "/".join(task)).exists():
                write_task(tmp_path / "rows", *task)
        return [(read_task(find_task(*task), tmp_path / "rows"), 64) for task in tasks]

    return read


def settings(**others):
    values = {"finetune_epochs": 1.0, "cotrain_epochs": 1.0, "rank_examples": 4, "learning_rate": 1e-3}
    return TrainingSettings(max_length=64, batch_size=2, **values).with_arguments(others)


def test_all_heads_are_trained_and_saved_as_ordinary_supernets(tmp_path, source, data):
    tasks = data(TASKS[0], TASKS[2])
    phases = []
    runs = train_on_tasks(source, tasks, settings(), Mixing("uniform"), SIZES, on_phase=phases.append)
    assert phases == ["data", "fine-tune", "rank", "co-train", "predict"]
    bodies = [run.trainer.elastic_model.base_model.state_dict() for run in runs]
    for run, (of_task, _), body in zip(runs, tasks, bodies, strict=True):
        assert run.data.task == of_task.task
        assert all(torch.equal(weight, bodies[0][name]) for name, weight in body.items())
        folder = tmp_path / run.data.task.name
        run.save_supernet(folder)
        record, details = (json.loads((folder / name).read_text()) for name in ("run.json", "training_details.json"))
        assert {use: of["rows"] for use, of in record["data"].items()} == {
            f"train ({of.task.name})": len(of.train) for of, _ in tasks
        }
        assert all(of["content_hash"] for of in record["data"].values())
        other = {"stsb": "copa", "copa": "stsb"}[run.data.task.name]
        assert details["dataset"].endswith(f"trained together with {other} (uniform)")
        again = answer_task(folder, of_task)
        for size, predictions in again.predictions["validation"].items():
            expected = run.predictions["validation"][size].logits
            torch.testing.assert_close(predictions.logits, expected, atol=1e-4, rtol=1e-3)
        assert set(load_elastic(folder).config.subnets) == set(SIZES)
        assert run.trainer.state.global_step > 0
    names = [type(run.trainer.elastic_model).__name__ for run in runs]
    assert names == ["ElasticForSequenceClassification", "ElasticForMultipleChoice"]


def test_the_shares_follow_the_progress(source, data):
    mixing = Mixing("dynamic", updates=3)
    with pytest.raises(ValueError, match=r"'dynamic' measures progress on rows that are held out"):
        train_on_tasks(source, data(*TASKS[:2]), settings(), mixing, SIZES)
    runs = train_on_tasks(source, data(*TASKS[:2]), settings(), mixing, SIZES, held_out_fraction=0.3)
    logs = [log for log in runs[0].trainer.state.log_history if "share_mnli" in log]
    assert logs
    for log in logs:
        assert log["share_mnli"] + log["share_stsb"] == pytest.approx(1)
        assert min(log["share_mnli"], log["share_stsb"]) >= 0.05
    assert len(runs[0].data.splits["held_out"]) and len(runs[1].data.splits["held_out"])


class Gradients(TrainerCallback):
    """Keeps what the optimizer gets."""

    def on_pre_optimizer_step(self, args, state, control, *, model, **kwargs):
        self.found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def two_task_trainer(source, data, **arguments):
    """A trainer of one step, whose batches are one of each of two tasks that disagree, and its batches."""
    tokenizer = load_tokenizer(source)
    ((of_task, _),) = data(("glue", "rte"))
    rows = encode_split(of_task.task, of_task.train.select([0, 1]), tokenizer, 64).dataset
    rows = rows.remove_columns("labels")
    parts = {name: rows.add_column("labels", [label] * 2) for name, label in (("rte", 0), ("wnli", 1))}
    torch.manual_seed(1)
    model = MultiTaskModel(load_supernet_with_new_head(source).config, [find_task("glue", name) for name in parts])
    with torch.no_grad():  # as if of one mind before
        model.classifier.weight[2:] = model.classifier.weight[:2].normal_(std=3.0)
    model.config.subnets = {"whole": SubnetConfig(), "half": SubnetConfig(layers=(0,))}
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for layer in model.base_model.layers:
        layer.attention.attention_dropout = 0.0
    of_task_alone = {"inplace_distillation": False, "hidden_weight": 0.0}
    args = ElasticTrainingArguments(
        tempfile.mkdtemp(),
        max_steps=1,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_grad_norm=0.0,
        report_to="none",
        save_strategy="no",
        **of_task_alone,
        **arguments,
    )
    collator = MultiTaskCollator(
        collator_for("sequence-classification", tokenizer), DataCollatorForMultipleChoice(tokenizer)
    )
    mixture = TaskMixture(parts, Mixing("uniform"))
    trainer = MultiTaskTrainer(
        model, args, train_dataset=mixture, data_collator=collator, processing_class=tokenizer, callbacks=[Gradients()]
    )
    return trainer, [collator([mixture[0], mixture[1]]), collator([mixture[2], mixture[3]])]


def least_cosine(gradients, direction):
    return torch.nn.functional.cosine_similarity(gradients, direction[None]).min()


def test_conflicts_between_tasks_and_sizes_are_handled(source, data):
    trainer, batches = two_task_trainer(source, data)
    model, gradients = trainer.elastic_model, []
    for batch in batches:
        for size in ("whole", "half"):
            model.zero_grad()
            model(**batch, subnet=size, num_items_in_batch=4).loss.backward()
            parameters = model.parameters()
            gradients.append(
                torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters])
            )
    model.zero_grad()
    gradients = torch.stack(gradients)
    trainer.train()
    added = next(c for c in trainer.callback_handler.callbacks if isinstance(c, Gradients)).found
    torch.testing.assert_close(added, gradients.sum(dim=0), atol=1e-6, rtol=1e-4)
    assert least_cosine(gradients, added) < -0.9
    trainer, _ = two_task_trainer(source, data, gradient_conflicts="upgrad")
    trainer.train()
    combined = next(c for c in trainer.callback_handler.callbacks if isinstance(c, Gradients)).found
    assert least_cosine(gradients, combined) > -0.1  # but for what the solver adds to be stable


def test_all_tasks_have_a_part_in_the_ranking(source, data):
    trainer, _ = two_task_trainer(source, data)
    trainer.train_dataset.shares = {"rte": 1.0, "wnli": 0.0}
    assert {int(batch["task"][0]) for batch in trainer.get_ranking_dataloader()} == {0, 1}
    assert {int(batch["task"][0]) for batch in trainer.get_train_dataloader()} == {0}


def test_tasks_of_one_name_are_refused(source, data):
    with pytest.raises(ValueError, match="Several tasks are called rte"):
        train_on_tasks(source, data(("glue", "rte"), ("super_glue", "rte")), settings(), Mixing(), SIZES)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"args": {"keep_effective_batch": False, "adapt_micro_batch_size": True, "max_examples": 8}},
            ValueError,
            "lets batches grow",
        ),
        ({"model": lambda model: model.of_task(0)}, TypeError, "is no MultiTaskModel"),
        ({"train_dataset": lambda model: [{"input_ids": [1], "labels": 0}]}, TypeError, "is no TaskMixture"),
        ({"args": {"save_strategy": "steps"}}, ValueError, "save_strategy='steps': a training on several tasks keeps"),
        ({"teachers": lambda model: [model.of_task(0)]}, ValueError, "teachers have one task"),
    ],
)
def test_what_does_not_fit_is_named(source, data, changes, error, message):
    trainer, _ = two_task_trainer(source, data)
    changes = dict(changes)
    arguments = {"report_to": "none", "save_strategy": "no", **changes.pop("args", {})}
    given = {"model": trainer.model, "train_dataset": trainer.train_dataset}
    given |= {name: make(trainer.model) for name, make in changes.items()}
    with pytest.raises(error, match=message):
        MultiTaskTrainer(args=ElasticTrainingArguments(tempfile.mkdtemp(), **arguments), **given)
