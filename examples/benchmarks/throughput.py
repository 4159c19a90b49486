"""Training throughput in real tokens on GLUE's lengths, against stock BERT with Trainer's defaults, part by part.

Each variant trains in processes of its own, which take turns; memory is the growth of the process's peak in training.
`--device cuda` measures on a GPU.
"""

import argparse
import json
import statistics
import tempfile

import torch
from datasets import Dataset
from fresh_process import measure_training, run_variant
from results import report
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

from hf_elastic import UnpaddingCollator, convert
from hf_elastic.tasks.bbc_news import minilm_checkpoint

GROUPING = {"train_sampling_strategy": "group_by_length"}
BF16 = {"bf16": True}
CHECKPOINTING = {"activation_checkpointing": True}
# Elastic or stock model, without padding or with, and the arguments that differ from the defaults.
VARIANTS = {
    "BERT, Trainer's defaults": (False, False, {}),
    "elastic, Trainer's defaults": (True, False, {}),
    "+ grouping": (True, False, GROUPING),
    "+ unpadding": (True, True, {}),
    "+ bf16": (True, False, BF16),
    "+ checkpointing": (True, False, CHECKPOINTING),
    "+ grouping, unpadding": (True, True, GROUPING),
    "+ grouping, unpadding, bf16": (True, True, GROUPING | BF16),
    "+ all four": (True, True, GROUPING | BF16 | CHECKPOINTING),
}
# The texts of a row by task; rows are drawn in proportion to the sizes of the training sets.
TEXTS = {
    "cola": ("sentence",),
    "mnli": ("premise", "hypothesis"),
    "mrpc": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"),
    "rte": ("sentence1", "sentence2"),
    "sst2": ("sentence",),
}


def glue_rows(data_dir: str, count: int, tokenizer) -> Dataset:
    """Draws rows of several tasks; the labels are made up, as they do not matter to the time."""
    tables = {task: Dataset.from_parquet(f"{data_dir}/glue/{task}/train.parquet") for task in TEXTS}
    total = sum(map(len, tables.values()))
    texts = []
    for task, table in tables.items():
        drawn = table.shuffle(seed=0).select(range(round(count * len(table) / total)))
        texts += [tuple(row[column] for column in TEXTS[task]) for row in drawn]
    rows = [dict(tokenizer(*text, truncation=True, max_length=512)) for text in texts]
    return Dataset.from_list([row | {"labels": index % 2} for index, row in enumerate(rows)]).shuffle(seed=1)


def train(options: argparse.Namespace) -> None:
    """Trains one variant for an epoch and prints its tokens per second and the memory that it took."""
    elastic, unpadding, changes = VARIANTS[options.variant]
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(minilm_checkpoint())
    rows = glue_rows(options.data, options.rows, tokenizer)
    set_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(minilm_checkpoint(), num_labels=2)
    model = convert(model) if elastic else model
    collator = DataCollatorWithPadding(tokenizer)
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=1,
        per_device_train_batch_size=options.batch_size,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=options.device == "cpu",
        **changes,
    )
    trainer = Trainer(model, arguments, UnpaddingCollator(collator) if unpadding else collator, rows)
    measured = measure_training(trainer, options.device)
    print(json.dumps({**measured, "tokens": sum(map(len, rows["input_ids"]))}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="../shared/data", help="folder with glue/<task>/train.parquet")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--variant", choices=list(VARIANTS), help="train this one and print its figures")
    options = parser.parse_args()
    if options.variant:
        train(options)
        return
    # Processors without instructions for bf16 are so slow that one round of it says enough.
    in_bf16 = {name for name, (_, _, changes) in VARIANTS.items() if changes.get("bf16") and options.device == "cpu"}
    rounds = [
        {
            variant: run_variant(__file__, variant, options)
            for variant in VARIANTS
            if turn == 0 or variant not in in_bf16
        }
        for turn in range(options.rounds)
    ]
    first = next(iter(VARIANTS))
    rows = []
    for variant in VARIANTS:
        turns = [turn for turn in rounds if variant in turn]
        speed = statistics.median(turn[variant]["tokens"] / turn[variant]["seconds"] for turn in turns)
        faster = statistics.median(turn[first]["seconds"] / turn[variant]["seconds"] for turn in turns)
        memory = statistics.median(turn[variant]["memory"] for turn in turns)
        share = statistics.median(turn[variant]["memory"] / turn[first]["memory"] for turn in turns)
        rows.append([variant, f"{speed:.0f}", f"{faster:.2f}", f"{memory:.0f}", f"{share:.2f}"])
    notes = (
        f"MiniLM-L6, one epoch of {options.rows} rows drawn from {', '.join(TEXTS)} in proportion to their sizes, "
        f"batches of {options.batch_size}, AdamW; one thread, processor time; medians of {options.rounds} rounds of "
        "fresh processes in turn, of bf16 on a CPU one. Targets: 5 times the tokens per second with bf16, 2.5 times "
        "without, 0.6 of the memory."
    )
    title = f"Training throughput, batches of {options.batch_size}" + (" on a GPU" if options.device == "cuda" else "")
    header = ["variant", "tokens / s", "times faster", "memory (MiB)", "of the first"]
    report("throughput.py", title, header, rows, notes)


if __name__ == "__main__":
    main()
