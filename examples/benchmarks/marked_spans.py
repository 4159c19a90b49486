"""Marks around the words that a task is about, against pooling the words' states, on Winograd schemas.

Pooling feeds the classifier the first token's pooled state and the mean state of each of the two spans, as the
baselines of SuperGLUE do (Wang et al. 2019, https://arxiv.org/abs/1905.00537).
"""

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path

import torch
from fine_tuning import fine_tuning_arguments
from results import report
from torch import nn
from transformers import AutoModel, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.marked_spans import find_words, mark
from hf_elastic.tasks.task_data import read_task

EPOCHS = 10
# Whether words are marked, and whether their states are pooled.
VARIANTS = {"marks": (True, False), "pooled spans": (False, True), "marks and pooled spans": (True, True)}


class SpanClassifier(nn.Module):
    """A classifier of the pooled first token, and of the mean state of each span if there is a mask of it."""

    def __init__(self, pooled_spans: bool) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(minilm_checkpoint())
        self.dropout = nn.Dropout(0.1)
        self.pooled_spans = pooled_spans
        self.classifier = nn.Linear((3 if pooled_spans else 1) * self.encoder.config.hidden_size, 2)

    def forward(self, input_ids, attention_mask, span1, span2, labels):
        outputs = self.encoder(input_ids, attention_mask)
        features = [outputs.pooler_output]
        if self.pooled_spans:
            for mask in (span1, span2):
                weights = mask / mask.sum(dim=1, keepdim=True)
                features.append((weights[..., None] * outputs.last_hidden_state).sum(dim=1))
        logits = self.classifier(self.dropout(torch.cat(features, dim=-1)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def encode(rows, tokenizer, has_marks: bool) -> list[dict]:
    """Token ids, labels, and a mask of each span's tokens."""
    examples = []
    for row in rows:
        places = [find_words(row["text"], row[f"span{i}_text"], row[f"span{i}_index"]) for i in (1, 2)]
        text = row["text"]
        if has_marks:
            text, places = mark(text, [(*place, sign) for place, sign in zip(places, "*#", strict=True)])
        encoded = tokenizer(text, return_offsets_mapping=True)
        offsets = encoded.pop("offset_mapping")
        masks = [
            [float(start < end and start < last and end > first) for start, end in offsets] for first, last in places
        ]
        examples.append({**encoded, "span1": masks[0], "span2": masks[1], "labels": row["label"]})
    return examples


def collate(examples: list[dict], padded: DataCollatorWithPadding) -> dict[str, torch.Tensor]:
    masks = {name: [example[name] for example in examples] for name in ("span1", "span2")}
    batch = padded([{k: example[k] for k in ("input_ids", "attention_mask", "labels")} for example in examples])
    length = batch["input_ids"].shape[1]
    for name, rows in masks.items():
        batch[name] = torch.tensor([row + [0.0] * (length - len(row)) for row in rows])
    return batch


def accuracy(variant: str, data, tokenizer, seed: int) -> float:
    has_marks, pooled_spans = VARIANTS[variant]
    set_seed(seed)
    padded = DataCollatorWithPadding(tokenizer)
    args = fine_tuning_arguments(TrainingArguments, EPOCHS, seed, batch_size=16)
    args.remove_unused_columns = False
    trainer = Trainer(
        SpanClassifier(pooled_spans),
        args,
        train_dataset=encode(data.train, tokenizer, has_marks),
        eval_dataset=encode(data.splits["validation"], tokenizer, has_marks),
        data_collator=lambda examples: collate(examples, padded),
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
    )
    trainer.train()
    return 100 * trainer.evaluate()["eval_accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="folder with super_glue/wsc/*.parquet"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    options = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(minilm_checkpoint())
    data = read_task(find_task("super_glue", "wsc"), options.data)
    scores = defaultdict(list)
    for seed in options.seeds:
        for variant in VARIANTS:
            scores[variant].append(accuracy(variant, data, tokenizer, seed))
            print(json.dumps(scores), flush=True)
    rows = [
        [variant, *(f"{score:.1f}" for score in of_variant), f"{statistics.mean(of_variant):.1f}"]
        for variant, of_variant in scores.items()
    ]
    labels = data.splits["validation"]["label"]
    majority = 100 * max(labels.count(label) for label in set(labels)) / len(labels)
    notes = (
        f"MiniLM-L6 fine-tuned for {EPOCHS} epochs on {len(data.train)} rows of SuperGLUE's wsc, batches of 16; "
        f"accuracy on {len(labels)} validation rows, of which {majority:.1f}% have the more frequent label."
    )
    header = ["input", *(f"seed {seed}" for seed in options.seeds), "mean"]
    report("marked_spans.py", "Marked words against pooled spans", header, rows, notes)


if __name__ == "__main__":
    main()
