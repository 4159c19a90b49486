"""Wall-clock time and accuracy of one family run, against fine-tuning and one distillation per size, on GLUE rows.

Both ways give the same sizes after as many epochs, with the same losses and settings.
"""

import argparse
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from fine_tuning import fine_tuning_arguments
from results import report
from transformers import AutoTokenizer, Trainer, set_seed
from transformers.utils import logging

from hf_elastic import ElasticTrainer, ElasticTrainingArguments, SubnetConfig, extract, rank
from hf_elastic.checkpoints import load_supernet
from hf_elastic.recipes import Recipe, subnet_configs
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.text_classification import encode, read
from hf_elastic.training.family import train_family

FINETUNE_EPOCHS, COTRAIN_EPOCHS = 1, 3


def new_model(data, seed: int):
    set_seed(seed)
    model = load_supernet(minilm_checkpoint(), **data.model_settings)
    model.config.subnets = subnet_configs(model.config, Recipe.load("minilm-bbc-news").subnets)
    return model


class Clock:
    """Wall-clock and processor time of the parts that are training."""

    def __init__(self) -> None:
        self.wall = self.processor = 0.0

    @contextmanager
    def running(self):
        wall, processor = time.perf_counter(), time.process_time()
        yield
        self.wall += time.perf_counter() - wall
        self.processor += time.process_time() - processor


def run_family(data, encoded, common, seed: int) -> tuple[Clock, dict[str, float]]:
    clock = Clock()
    with clock.running():
        model = new_model(data, seed)
        args = fine_tuning_arguments(ElasticTrainingArguments, COTRAIN_EPOCHS, seed)
        run = train_family(model, args, encoded["train"], finetune_epochs=FINETUNE_EPOCHS, **common)
    return clock, {name: metrics["accuracy"] for name, metrics in run.evaluate(encoded["validation"]).items()}


def run_separately(data, encoded, common, seed: int) -> tuple[Clock, dict[str, float]]:
    """The full model for as many epochs in all, ranked; then each smaller size cut out and distilled from it."""
    clock = Clock()
    with clock.running():
        teacher = new_model(data, seed)
        args = fine_tuning_arguments(ElasticTrainingArguments, FINETUNE_EPOCHS + COTRAIN_EPOCHS, seed)
        trainer = Trainer(teacher, args, train_dataset=encoded["train"], **common)
        trainer.train()
        rank(teacher, trainer.get_train_dataloader(), max_batches=8)
    accuracies = {"large": trainer.evaluate(encoded["validation"])["eval_accuracy"]}
    for name in [name for name in teacher.config.subnets if name != "large"]:
        with clock.running():
            student = extract(teacher, name)
            student.config.subnets = {name: SubnetConfig()}
            args = fine_tuning_arguments(ElasticTrainingArguments, COTRAIN_EPOCHS, seed)
            trainer = ElasticTrainer(student, args, train_dataset=encoded["train"], teachers=[teacher], **common)
            trainer.train()
        accuracies[name] = trainer.evaluate(encoded["validation"])["eval_accuracy"]
    return clock, accuracies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with glue/<task>/*.parquet")
    parser.add_argument("--tasks", nargs="+", default=["mrpc", "sst2"])
    parser.add_argument("--rows", type=int, default=4000, help="training rows at most")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    options = parser.parse_args()
    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(minilm_checkpoint())
    rows = []
    for task in options.tasks:
        data = read(options.data / "glue" / task).limit(options.rows)
        encoded = encode(data, tokenizer, max_length=128)
        common = {"processing_class": tokenizer, "compute_metrics": data.compute_metrics}
        for seed in options.seeds:
            one, family = run_family(data, encoded, common, seed)
            many, separate = run_separately(data, encoded, common, seed)
            accuracies = [f"{100 * family[name]:.1f} / {100 * separate[name]:.1f}" for name in family]
            times = [f"{one.wall:.0f} / {many.wall:.0f}", f"{one.wall / many.wall:.2f}"]
            times += [f"{one.processor:.0f} / {many.processor:.0f}", f"{one.processor / many.processor:.2f}"]
            rows.append([f"{task}, {len(encoded['train'])} rows, seed {seed}", *times, *accuracies])
    notes = (
        f"MiniLM-L6, batch 32, {FINETUNE_EPOCHS} epoch of the full model and {COTRAIN_EPOCHS} of all sizes, against "
        f"{FINETUNE_EPOCHS + COTRAIN_EPOCHS} epochs of the full model and {COTRAIN_EPOCHS} of distillation for each "
        f"smaller size. {torch.get_num_threads()} thread(s), evaluation not timed. Times and validation accuracies: "
        "family / separate. Targets: at most 0.60 of the time, no size worse by more than 1 point."
    )
    header = ["task", "wall-clock (s)", "ratio", "processor (s)", "ratio", *family]
    report("family_cost.py", "One family run against a run per size", header, rows, notes)


if __name__ == "__main__":
    main()
