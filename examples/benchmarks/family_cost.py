"""Wall-clock time and accuracy of one family run, against fine-tuning and one distillation per size, on GLUE rows.

Both ways give the same sizes after as many epochs, with the same losses and settings.
"""

import argparse
import tempfile
import time
from pathlib import Path

from results import report
from transformers import AutoTokenizer, Trainer, set_seed
from transformers.utils import logging

from hf_elastic import ElasticTrainer, ElasticTrainingArguments, SubnetConfig, extract, rank
from hf_elastic.checkpoints import load_classifier
from hf_elastic.recipes import Recipe, subnet_configs
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.text_classification import encode, read
from hf_elastic.training.family import train_family

ROWS = 8000
FINETUNE_EPOCHS, COTRAIN_EPOCHS = 1, 3


def arguments(epochs: int, seed: int) -> ElasticTrainingArguments:
    return ElasticTrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=1e-4,
        warmup_steps=0.1,
        seed=seed,
        save_strategy="no",
        report_to="none",
    )


def new_model(data, seed: int):
    set_seed(seed)
    model = load_classifier(minilm_checkpoint(), **data.model_settings)
    model.config.subnets = subnet_configs(model.config, Recipe.load("minilm-bbc-news").subnets)
    return model


def run_family(data, encoded, common, seed: int) -> tuple[float, dict[str, float]]:
    start = time.perf_counter()
    model, args = new_model(data, seed), arguments(COTRAIN_EPOCHS, seed)
    run = train_family(model, args, encoded["train"], finetune_epochs=FINETUNE_EPOCHS, **common)
    seconds = time.perf_counter() - start
    return seconds, {name: metrics["accuracy"] for name, metrics in run.evaluate(encoded["validation"]).items()}


def run_separately(data, encoded, common, seed: int) -> tuple[float, dict[str, float]]:
    """The full model for as many epochs in all, ranked; then each smaller size cut out and distilled from it."""
    start = time.perf_counter()
    teacher = new_model(data, seed)
    args = arguments(FINETUNE_EPOCHS + COTRAIN_EPOCHS, seed)
    trainer = Trainer(teacher, args, train_dataset=encoded["train"], **common)
    trainer.train()
    rank(teacher, trainer.get_train_dataloader(), max_batches=8)
    seconds = time.perf_counter() - start
    accuracies = {"large": trainer.evaluate(encoded["validation"])["eval_accuracy"]}
    for name in [name for name in teacher.config.subnets if name != "large"]:
        start = time.perf_counter()
        student = extract(teacher, name)
        student.config.subnets = {name: SubnetConfig()}
        args = arguments(COTRAIN_EPOCHS, seed)
        trainer = ElasticTrainer(student, args, train_dataset=encoded["train"], teachers=[teacher], **common)
        trainer.train()
        seconds += time.perf_counter() - start
        accuracies[name] = trainer.evaluate(encoded["validation"])["eval_accuracy"]
    return seconds, accuracies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with glue/<task>/*.parquet")
    parser.add_argument("--tasks", nargs="+", default=["mrpc", "sst2"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    options = parser.parse_args()
    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(minilm_checkpoint())
    rows = []
    for task in options.tasks:
        data = read(options.data / "glue" / task).limit(ROWS)
        encoded = encode(data, tokenizer, max_length=128)
        common = {"processing_class": tokenizer, "compute_metrics": data.compute_metrics}
        for seed in options.seeds:
            family_seconds, family = run_family(data, encoded, common, seed)
            separate_seconds, separate = run_separately(data, encoded, common, seed)
            accuracies = [f"{100 * family[name]:.1f} / {100 * separate[name]:.1f}" for name in family]
            times = [f"{family_seconds:.0f}", f"{separate_seconds:.0f}", f"{family_seconds / separate_seconds:.2f}"]
            rows.append([f"{task}, seed {seed}", *times, *accuracies])
    notes = (
        f"MiniLM-L6, batch 32, {FINETUNE_EPOCHS} epoch of the full model and {COTRAIN_EPOCHS} of all sizes, against "
        f"{FINETUNE_EPOCHS + COTRAIN_EPOCHS} epochs of the full model and {COTRAIN_EPOCHS} of distillation for each "
        "smaller size. Seconds of wall-clock time, evaluation excluded; accuracies on the validation rows, "
        "family / separate. Targets: at most 0.60 of the time, no size worse by more than 1 point."
    )
    header = ["task", "family (s)", "separate (s)", "ratio", *family]
    report("family_cost.py", "One family run against a run per size", header, rows, notes)


if __name__ == "__main__":
    main()
