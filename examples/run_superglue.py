"""Run a task of SuperGLUE with several seeds, compare the sizes, export one and answer with it.

Runs as it stands on CB from the Hub and MiniLM of the `demo` extra. Every task goes the same way, whatever its rows
have: pairs, marked words, choices or entities. What is done stays done: another run goes on where this one stopped.
"""

import argparse
from pathlib import Path

import torch

from hf_elastic import export_family
from hf_elastic.checkpoints import load_elastic, load_tokenizer
from hf_elastic.hub.details import TrainingDetails
from hf_elastic.hub.table import markdown_table
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.benchmark_request import BenchmarkRequest
from hf_elastic.tasks.benchmark_run import run_benchmark
from hf_elastic.tasks.benchmark_training import training_folder
from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.report import score_table, write_report
from hf_elastic.tasks.task_data import read_task
from hf_elastic.tasks.truncation import tokenize
from hf_elastic.training.family import read_metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="cb")
    parser.add_argument("--model", help="folder or Hub id of a checkpoint; MiniLM by default")
    parser.add_argument("--data-dir", help="folder with super_glue/<task>/<split>.parquet; the Hub's by default")
    parser.add_argument("--output-dir", type=Path, default=Path("superglue"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--size", default="small", help="the size to export")
    parser.add_argument("--epochs", type=float, default=3.0, help="of the full model alone, and of all sizes")
    parser.add_argument("--max-length", type=int, default=128)
    options = parser.parse_args()

    # 1. All sizes, once for each seed, and a table of their scores with the ensemble of the seeds.
    request = BenchmarkRequest(
        "super_glue",
        str(options.model or minilm_checkpoint()),
        data=options.data_dir,
        settings={
            "max_length": options.max_length,
            "finetune_epochs": options.epochs,
            "cotrain_epochs": options.epochs,
        },
        seeds=options.seeds,
    )
    run = run_benchmark(request, [options.task], options.output_dir)
    print(markdown_table(score_table(write_report(run.results, options.output_dir))))

    # 2. One size of the first seed as a checkpoint of its own.
    supernet = training_folder(options.output_dir, options.task, options.seeds[0]) / "supernet"
    family = export_family(
        load_elastic(supernet),
        load_tokenizer(supernet),
        options.output_dir / "family",
        subnets=[options.size],
        metrics=read_metrics(supernet, [options.size]),
        details=TrainingDetails.load(supernet),
        sequence_length=options.max_length,
    )

    # 3. Its answers: the task's format says what the model reads of a row, and what its logits mean.
    task, model, tokenizer = find_task("super_glue", options.task), family.load(options.size), family.tokenizer()
    for row in read_task(task, options.data_dir).splits["validation"].select(range(2)):
        encoded = tokenize(task.input_format.examples(row), tokenizer, options.max_length)
        batch = tokenizer.pad(encoded, return_tensors="pt")
        if task.input_format.head == "multiple-choice":
            batch = {name: values[None] for name, values in batch.items()}
        with torch.no_grad():
            answer = task.input_format.answer(row, model(**batch).logits.numpy())
        print(row, "->", answer if isinstance(answer, str) else task.label_names[answer])


if __name__ == "__main__":
    main()
