"""Time and peak memory of a co-training step against a plain step of the largest size, mechanism by mechanism.

Each variant trains in processes of its own, which take turns; memory is the peak of the process above what it holds
before the first step: activations, gradients and the optimizer's state. `--device cuda` measures on a GPU.
"""

import argparse
import json
import statistics
import tempfile

import torch
from fresh_process import measure_training, run_variant
from results import report
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

from hf_elastic import ElasticTrainer, ElasticTrainingArguments, convert
from hf_elastic.recipes import DEFAULT_SUBNETS, subnet_configs
from hf_elastic.tasks.bbc_news import minilm_checkpoint

RELATIONS = {"hidden_weight": 0.0, "relation_weight": 1.0, "layer_map": "last"}
# What differs from ElasticTrainer's defaults, which draw the largest size, the smallest and one between; None is the
# stock Trainer on the full model.
VARIANTS: dict[str, dict | None] = {
    "plain": None,
    "sandwich": {},
    "sandwich, no hidden loss": {"hidden_weight": 0.0},
    "sandwich, relations of the last layer": RELATIONS,
    "sandwich, micro-batches of a quarter": {"micro_batch_size": 8},
    "sandwich, activation checkpointing": {"activation_checkpointing": True},
    "sandwich, PCGrad": {"gradient_conflicts": "pcgrad"},
    "all four sizes": {"sampling": "joint"},
}
BATCH_SIZE = 32


def train(options: argparse.Namespace) -> None:
    """Trains one variant and prints the time of its steps and the memory that they took."""
    changes = VARIANTS[options.variant]
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    set_seed(0)
    model = convert(AutoModelForSequenceClassification.from_pretrained(minilm_checkpoint(), num_labels=2))
    model.config.subnets = subnet_configs(model.config, DEFAULT_SUBNETS)
    tokens = torch.randint(1000, 20000, (BATCH_SIZE * (options.steps + 1), options.length))
    rows = [
        {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": i % 2} for i, row in enumerate(tokens)
    ]
    settings = {
        "output_dir": tempfile.mkdtemp(),
        "max_steps": options.steps + 1,
        "per_device_train_batch_size": BATCH_SIZE,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": options.device == "cpu",
    }
    if changes is None:
        trainer = Trainer(model, TrainingArguments(**settings), train_dataset=rows)
    else:
        trainer = ElasticTrainer(model, ElasticTrainingArguments(**settings, **changes), train_dataset=rows)
    measured = measure_training(trainer, options.device)
    print(json.dumps({**measured, "seconds": measured["seconds"] / (options.steps + 1)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--variant", choices=list(VARIANTS), help="train this one and print its figures")
    options = parser.parse_args()
    if options.variant:
        train(options)
        return
    rounds = [
        {variant: run_variant(__file__, variant, options) for variant in VARIANTS} for _ in range(options.rounds)
    ]
    rows = []
    for variant in VARIANTS:
        ratios = {
            kind: statistics.median(turn[variant][kind] / turn["plain"][kind] for turn in rounds)
            for kind in ("seconds", "memory")
        }
        memory = statistics.median(turn[variant]["memory"] for turn in rounds)
        rows.append([variant, f"{ratios['seconds']:.2f}", f"{memory:.0f}", f"{ratios['memory']:.2f}"])
    notes = (
        f"MiniLM-L6 with the four default sizes, batches of {BATCH_SIZE} texts of {options.length} tokens, AdamW, one "
        f"thread, {options.steps + 1} steps, median of {options.rounds} rounds; times and memory against `Trainer` on "
        "the full model. Targets: a sandwich step (largest, smallest and one random size) costs at most 1.9 plain "
        "steps and 1.25 of their memory."
    )
    header = ["step", "time", "peak memory (MiB)", "against plain"]
    report("memory.py", "A co-training step against a plain step", header, rows, notes)


if __name__ == "__main__":
    main()
