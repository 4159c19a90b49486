"""What each mechanism of co-training gains, size by size, on GLUE rows: from plain co-training upwards."""

import argparse
import statistics
import time
from pathlib import Path

import torch
from fine_tuning import fine_tuning_arguments
from results import report
from transformers import AutoTokenizer, DataCollatorWithPadding, Trainer, set_seed
from transformers.utils import logging

from hf_elastic import ElasticTrainer, ElasticTrainingArguments, Teacher, UnpaddingCollator, rank
from hf_elastic.checkpoints import load_classifier
from hf_elastic.recipes import DEFAULT_SUBNETS, subnet_configs
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.text_classification import encode, read

PLAIN = {"hidden_weight": 0.0}
HIDDEN = {"hidden_weight": 0.1}
SCHEDULE = {
    "task_weight": 0.2,
    "task_weight_end": 0.7,
    "distillation_weight": 0.8,
    "distillation_weight_end": 0.3,
    "distillation_schedule": "linear",
    "detachment_probability": 0.1,
}
# The arguments of each variant, and the number of external teachers.
VARIANTS: dict[str, tuple[dict, int]] = {
    "task loss only": ({**PLAIN, "inplace_distillation": False}, 0),
    "plain: in-place distillation": (PLAIN, 0),
    "+ hidden alignment": (HIDDEN, 0),
    "+ relations": ({**PLAIN, "relation_weight": 1.0, "layer_map": "last"}, 0),
    "+ two teachers": (HIDDEN, 2),
    "+ schedule and detachment": ({**HIDDEN, **SCHEDULE}, 0),
    "+ AGC": ({**HIDDEN, "adaptive_clipping": 0.01, "max_grad_norm": 0.0}, 0),
}


def fine_tuned(data, encoded, common: dict, epochs: float, seed: int):
    """The full model after a fine-tuning of its own: where all variants begin, and what teachers are."""
    set_seed(seed)
    model = load_classifier(minilm_checkpoint(), **data.model_settings)
    model.config.subnets = subnet_configs(model.config, DEFAULT_SUBNETS)
    trainer = Trainer(model, fine_tuning_arguments(ElasticTrainingArguments, epochs, seed), **common)
    trainer.train()
    return trainer


def run_task(task: str, options: argparse.Namespace, tokenizer) -> dict[str, dict[str, list[float]]]:
    """Accuracies of every variant and size, one for each seed."""
    data = read(options.data / "glue" / task).limit(options.rows)
    encoded = encode(data, tokenizer, max_length=128)
    common = {
        "train_dataset": encoded["train"],
        "data_collator": UnpaddingCollator(DataCollatorWithPadding(tokenizer)),
        "compute_metrics": data.compute_metrics,
    }
    accuracies: dict[str, dict[str, list[float]]] = {variant: {} for variant in VARIANTS}
    for seed in options.seeds:
        first = fine_tuned(data, encoded, common, 1, seed)
        rank(first.model, first.get_train_dataloader(), max_batches=8)
        teachers = [fine_tuned(data, encoded, common, 3, 100 + 10 * seed + i).model for i in range(2)]
        start = {name: value.clone() for name, value in first.model.state_dict().items()}
        for variant, (settings, number) in VARIANTS.items():
            began = time.process_time()
            first.model.load_state_dict(start)
            args = fine_tuning_arguments(ElasticTrainingArguments, options.epochs, seed)
            for name, value in settings.items():
                setattr(args, name, value)
            used = [Teacher(each) for each in teachers[:number]]
            trainer = ElasticTrainer(first.model, args, teachers=used, **common)
            trainer.train()
            trainer.evaluate(encoded["validation"])
            for size, metrics in trainer.subnet_metrics.items():
                accuracies[variant].setdefault(size, []).append(100 * metrics["accuracy"])
            scores = {size: f"{values[-1]:.1f}" for size, values in accuracies[variant].items()}
            print(task, seed, variant, scores, f"{time.process_time() - began:.0f} s", flush=True)
    return accuracies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with glue/<task>/*.parquet")
    parser.add_argument("--tasks", nargs="+", default=["rte", "mrpc", "sst2"])
    parser.add_argument("--rows", type=int, default=8000, help="training rows at most")
    parser.add_argument("--epochs", type=float, default=3, help="of all sizes together")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    options = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(minilm_checkpoint())
    rows = []
    for task in options.tasks:
        for variant, by_size in run_task(task, options, tokenizer).items():
            cells = [f"{statistics.mean(scores):.1f} ± {statistics.pstdev(scores):.1f}" for scores in by_size.values()]
            mean = statistics.mean(statistics.mean(scores) for scores in by_size.values())
            rows.append([task, variant, *cells, f"{mean:.1f}"])
    notes = (
        f"MiniLM-L6, at most {options.rows} training rows, batches of 32, one epoch of the full model and "
        f"{options.epochs:g} of all sizes, which begin at the same weights in all variants; validation accuracy, mean "
        f"and spread of {len(options.seeds)} seeds. Teachers are two full models that were fine-tuned for 3 epochs "
        "from other heads and orders of the data."
    )
    header = ["task", "co-training", *DEFAULT_SUBNETS, "mean"]
    report("ablation.py", "Ablation of the co-training", header, rows, notes)


if __name__ == "__main__":
    main()
