"""Train sizes of an encoder on a task of GLUE, compare them, export one and use it: what `hf-elastic glue` is made of.

Runs as it stands on RTE from the Hub and MiniLM of the `demo` extra. `--data-dir` takes a folder that has
glue/<task>/<split>.parquet, and any task of GLUE goes the same way.
"""

import argparse
from pathlib import Path

from transformers import pipeline

from hf_elastic import export_family
from hf_elastic.compression.cost import count_parameters
from hf_elastic.hub.details import TrainingDetails
from hf_elastic.recipes import DEFAULT_SUBNETS, TrainingSettings
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.task_data import read_task
from hf_elastic.tasks.task_training import train_on_task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="rte")
    parser.add_argument("--model", help="folder or Hub id of a checkpoint; MiniLM by default")
    parser.add_argument("--data-dir", help="folder of rows; the Hub's by default")
    parser.add_argument("--output-dir", type=Path, default=Path("glue-family"))
    parser.add_argument("--size", choices=DEFAULT_SUBNETS, default="small", help="the size to export")
    parser.add_argument("--epochs", type=float, default=1.0, help="of the full model alone, and of all sizes")
    parser.add_argument("--train-rows", type=int, help="all by default")
    parser.add_argument("--max-length", type=int, default=128)
    options = parser.parse_args()

    # 1. The rows, checked against the task's schema.
    task = find_task("glue", options.task)
    data = read_task(task, options.data_dir)

    # 2. Fine-tune the full model, rank its units, train all sizes together, predict every split with each of them.
    settings = TrainingSettings(
        max_length=options.max_length,
        batch_size=32,
        learning_rate=1e-4,
        finetune_epochs=options.epochs,
        cotrain_epochs=options.epochs,
        train_rows=options.train_rows,
    )
    run = train_on_task(options.model or minilm_checkpoint(), data, settings, DEFAULT_SUBNETS)
    model = run.trainer.elastic_model

    # 3. What each size costs and scores, on every split with labels.
    for split, by_size in run.scores.items():
        for size, metrics in by_size.items():
            values = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
            print(f"{split} {size:>6}: {count_parameters(model, size).encoder:>11,} encoder parameters, {values}")

    # 4. One size as a checkpoint of its own, with a card that says what it was trained and scored on.
    supernet = options.output_dir / "supernet"
    run.save_supernet(supernet)
    metrics = {options.size: run.scores[data.scored_splits[0]][options.size]}
    family = export_family(
        model,
        run.trainer.processing_class,
        options.output_dir / "family",
        subnets=[options.size],
        metrics=metrics,
        details=TrainingDetails.load(supernet),
        sequence_length=options.max_length,
    )

    # 5. An ordinary classifier.
    classify = pipeline("text-classification", model=family.load(options.size), tokenizer=family.tokenizer())
    for row in data.splits[data.scored_splits[0]].select(range(2)):
        texts = dict(zip(("text", "text_pair"), task.input_format.examples(row)[0].texts, strict=False))
        print(texts, classify(texts, truncation=True, max_length=options.max_length))


if __name__ == "__main__":
    main()
