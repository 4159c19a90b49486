"""Experts against the dense networks that they were made of: output, speed, and accuracy after equal training."""

import argparse
import statistics
from pathlib import Path

import torch
from fine_tuning import fine_tuning_arguments
from results import report
from timing import compare, keep_freed_memory
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

from hf_elastic import SubnetConfig, UnpaddingCollator, copy_into_experts, extract, rank, split_into_experts
from hf_elastic.checkpoints import load_supernet
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.text_classification import encode, read

EXPERTS, ACTIVE = 8, 2
QUARTER = SubnetConfig(intermediate_size=384)


def variants(model, batches) -> dict:
    """Gives the models to compare, made of one checkpoint; each is a function, as all of them are large."""
    return {
        "dense": lambda: extract(model, None),
        "dense, a quarter of the neurons": lambda: extract(model, QUARTER),
        f"split, {ACTIVE} of {EXPERTS} active": lambda: split_into_experts(model, EXPERTS, ACTIVE, batches),
        f"split, all {EXPERTS} active": lambda: split_into_experts(model, EXPERTS, EXPERTS, batches),
        "4 copies, 1 active": lambda: copy_into_experts(model, 4, 1),
    }


def speed_rows(model, batches) -> list[list[str]]:
    """Compares outputs and times of untrained variants, for the first layer's network and for the whole model."""
    tokens = torch.randn(2048, model.config.hidden_size)
    inputs = torch.randint(1000, 30000, (16, 128))
    rows = []
    with torch.inference_mode():
        models = {name: make().eval() for name, make in variants(model, batches).items()}
        dense = models["dense"]
        expected = dense(inputs).logits
        for name, other in models.items():
            network, own = dense.model.layers[0].mlp, other.model.layers[0].mlp
            _, _, of_layer = compare(lambda n=network: n(tokens), lambda n=own: n(tokens), 15)
            _, _, of_model = compare(lambda: dense(inputs), lambda m=other: m(inputs), 7)
            difference = (other(inputs).logits - expected).abs().max().item()
            rows.append([name, f"{difference:.1e}", f"{of_layer:.2f}", f"{of_model:.2f}"])
    return rows


def accuracy(make, data, encoded, tokenizer, seed: int, epochs: int) -> float:
    set_seed(seed)
    model = make()
    arguments = fine_tuning_arguments(TrainingArguments, epochs, seed)
    collator = UnpaddingCollator(DataCollatorWithPadding(tokenizer))
    trainer = Trainer(
        model, arguments, collator, encoded["train"], encoded["validation"], compute_metrics=data.compute_metrics
    )
    trainer.train()
    return 100 * trainer.evaluate()["eval_accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with glue/<task>/*.parquet")
    parser.add_argument("--tasks", nargs="+", default=["mrpc", "sst2"])
    parser.add_argument("--rows", type=int, default=2000, help="training rows at most")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    options = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    keep_freed_memory()
    tokenizer = AutoTokenizer.from_pretrained(minilm_checkpoint())
    accuracies: dict[str, list[str]] = {}
    for task in options.tasks:
        data = read(options.data / "glue" / task).limit(options.rows)
        encoded = encode(data, tokenizer, max_length=128)
        batches = list(
            DataLoader(encoded["train"].select(range(256)), 32, collate_fn=DataCollatorWithPadding(tokenizer))
        )
        set_seed(0)
        model = load_supernet(minilm_checkpoint(), **data.model_settings)
        rank(model, batches)
        for name, make in variants(model, batches).items():
            runs = [accuracy(make, data, encoded, tokenizer, seed, options.epochs) for seed in options.seeds]
            accuracies.setdefault(name, []).append(f"{statistics.mean(runs):.1f}")
            print(task, name, accuracies[name][-1], flush=True)
    rows = [[*row, *accuracies[row[0]]] for row in speed_rows(model, batches)]
    notes = (
        f"MiniLM-L6 (networks of 1,536 neurons), one thread, processor time, medians of turns: the first layer's "
        f"network on 2,048 tokens, the model on 16 times 128. Validation accuracy after {options.epochs} epochs on up "
        f"to {options.rows} rows, mean over the seeds {options.seeds}."
    )
    header = [
        "variant",
        "largest difference of logits",
        "network: times faster",
        "model: times faster",
        *options.tasks,
    ]
    report("experts.py", "Experts", header, rows, notes)


if __name__ == "__main__":
    main()
