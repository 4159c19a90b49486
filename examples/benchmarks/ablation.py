"""What each mechanism of co-training gains, size by size, on GLUE rows: from plain co-training upwards."""

import argparse
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path

import torch
from fine_tuning import fine_tuning_arguments
from results import report
from transformers import AutoTokenizer, DataCollatorWithPadding, Trainer, set_seed
from transformers.utils import logging

from hf_elastic import ElasticTrainer, ElasticTrainingArguments, Teacher, UnpaddingCollator, rank
from hf_elastic.checkpoints import load_supernet
from hf_elastic.recipes import DEFAULT_SUBNETS, subnet_configs
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.text_classification import encode, read

TASKS, SEEDS = ["rte", "mrpc", "sst2"], [1, 2]
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


def fine_tuned(data, common: dict, epochs: float, seed: int):
    """The full model after a fine-tuning of its own: where all variants begin, and what teachers are."""
    set_seed(seed)
    model = load_supernet(minilm_checkpoint(), **data.model_settings)
    model.config.subnets = subnet_configs(model.config, DEFAULT_SUBNETS)
    trainer = Trainer(model, fine_tuning_arguments(ElasticTrainingArguments, epochs, seed), **common)
    trainer.train()
    return trainer


def run_task(task: str, options: argparse.Namespace, tokenizer) -> None:
    """Trains every variant that the file of scores has none of, and adds its accuracy of each size."""
    data = read(options.data / "glue" / task).limit(options.rows)
    encoded = encode(data, tokenizer, max_length=128)
    common = {
        "train_dataset": encoded["train"],
        "data_collator": UnpaddingCollator(DataCollatorWithPadding(tokenizer)),
        "compute_metrics": data.compute_metrics,
    }
    teachers = []
    for seed in options.seeds:
        done = [variant for *key, variant in read_scores(options.scores) if key == [task, seed]]
        variants = [variant for variant in options.variants if variant not in done]
        if not variants:
            continue
        first = fine_tuned(data, common, 1, seed)
        rank(first.model, first.get_train_dataloader(), max_batches=8)
        start = {name: value.clone() for name, value in first.model.state_dict().items()}
        for variant in variants:
            began = time.process_time()
            settings, number = VARIANTS[variant]
            while len(teachers) < number:
                teachers.append(Teacher(fine_tuned(data, common, 3, 110 + len(teachers)).model))
            first.model.load_state_dict(start)
            args = fine_tuning_arguments(ElasticTrainingArguments, options.epochs, seed)
            for name, value in settings.items():
                setattr(args, name, value)
            trainer = ElasticTrainer(first.model, args, teachers=teachers[:number], **common)
            trainer.train()
            trainer.evaluate(encoded["validation"])
            scores = {size: 100 * metrics["accuracy"] for size, metrics in trainer.subnet_metrics.items()}
            print(task, seed, variant, scores, f"{time.process_time() - began:.0f} s", flush=True)
            with options.scores.open("a") as file:
                file.write(json.dumps([[task, seed, variant], scores]) + "\n")


def read_scores(path: Path) -> dict[tuple[str, int, str], dict[str, float]]:
    """The accuracy of each size by task, seed and variant."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {tuple(key): scores for key, scores in map(json.loads, lines)}


def table(scores: dict[tuple[str, int, str], dict[str, float]]) -> list[list[str]]:
    """A row for each task and variant: mean and spread of the seeds by size, and the mean of the sizes."""
    by_row = defaultdict(list)
    for (task, _, variant), sizes in scores.items():
        by_row[task, variant].append([sizes[name] for name in DEFAULT_SUBNETS])
    rows = []
    for task, variant in sorted(by_row, key=lambda row: (row[0], list(VARIANTS).index(row[1]))):
        seeds = by_row[task, variant]
        cells = [
            f"{statistics.mean(size):.1f}" + (f" ± {statistics.stdev(size):.1f}" if len(size) > 1 else "")
            for size in zip(*seeds, strict=True)
        ]
        mean = statistics.mean(map(statistics.mean, seeds))
        rows.append([task, variant, str(len(seeds)), *cells, f"{mean:.1f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with glue/<task>/*.parquet")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--rows", type=int, default=8000, help="training rows at most")
    parser.add_argument("--epochs", type=float, default=2, help="of all sizes together")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument(
        "--scores",
        type=Path,
        default=Path(__file__).with_name("scores") / "ablation.jsonl",
        help="what is there already is not run again",
    )
    options = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    options.scores.parent.mkdir(exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(minilm_checkpoint())
    for task in options.tasks:
        run_task(task, options, tokenizer)
    scores, wanted = read_scores(options.scores), len(TASKS) * len(VARIANTS) * len(SEEDS)
    unfinished = f" {len(scores)} of the {wanted} trainings were run so far." if len(scores) < wanted else ""
    notes = (
        f"MiniLM-L6, at most {options.rows} training rows, batches of 32, one epoch of the full model and "
        f"{options.epochs:g} of all sizes, which begin at the same weights in all variants; validation accuracy, mean "
        "and standard deviation of the seeds. Teachers are two full models that were fine-tuned for 3 epochs from "
        f"other heads and orders of the data.{unfinished}"
    )
    header = ["task", "co-training", "seeds", *DEFAULT_SUBNETS, "mean"]
    report("ablation.py", "Ablation of the co-training", header, table(scores), notes)


if __name__ == "__main__":
    main()
