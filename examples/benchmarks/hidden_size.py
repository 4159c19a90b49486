"""A family whose small size has half the hidden size, against one that saves as many parameters elsewhere."""

import argparse
import statistics
from pathlib import Path

import torch
from fine_tuning import fine_tuning_arguments
from results import report
from transformers import AutoTokenizer, DataCollatorWithPadding, set_seed
from transformers.utils import logging

from hf_elastic import ElasticTrainingArguments, SubnetConfig, UnpaddingCollator
from hf_elastic.checkpoints import load_supernet
from hf_elastic.compression.cost import count_parameters
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.text_classification import encode, read
from hf_elastic.training.family import train_family

# Both small sizes have as many parameters in the encoder.
SMALL = {"half the hidden size": {"hidden": 0.5}, "half the heads and neurons": {"width": 0.5}}


def train(data, small: dict[str, float], seed: int, epochs: int) -> dict[str, float]:
    """Trains a family; gives the accuracy of both sizes and the millions of parameters of the small one."""
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(minilm_checkpoint())
    model = load_supernet(minilm_checkpoint(), **data.model_settings)
    model.config.subnets = {"large": SubnetConfig(), "small": SubnetConfig.scaled(model.config, **small)}
    arguments = fine_tuning_arguments(ElasticTrainingArguments, epochs, seed)
    encoded = encode(data, tokenizer, 128)
    scores = train_family(
        model,
        arguments,
        encoded["train"],
        encoded["validation"],
        processing_class=tokenizer,
        compute_metrics=data.compute_metrics,
        data_collator=UnpaddingCollator(DataCollatorWithPadding(tokenizer)),
        finetune_epochs=1,
    ).scores
    parameters = count_parameters(model, "small")
    accuracies = {size: 100 * scores[size]["accuracy"] for size in ("large", "small")}
    return accuracies | {"encoder": parameters.encoder / 1e6, "total": parameters.total / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with glue/<task>/*.parquet")
    parser.add_argument("--tasks", nargs="+", default=["mrpc", "rte", "sst2"])
    parser.add_argument("--rows", type=int, default=4000, help="training rows at most")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    options = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    rows = []
    for task in options.tasks:
        data = read(options.data / "glue" / task).limit(options.rows)
        for name, small in SMALL.items():
            runs = [train(data, small, seed, options.epochs) for seed in options.seeds]
            means = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
            rows.append([task, name, *(f"{means[key]:.1f}" for key in ("large", "small", "encoder", "total"))])
            print(*rows[-1], flush=True)
    notes = (
        f"MiniLM-L6, up to {options.rows} training rows, 1 epoch of the full model and {options.epochs} of both "
        f"sizes; validation accuracy, mean over the seeds {options.seeds}."
    )
    header = ["task", "the small size has", "large", "small", "its encoder (M)", "all of it (M)"]
    report("hidden_size.py", "A smaller hidden size against fewer heads and neurons", header, rows, notes)


if __name__ == "__main__":
    main()
