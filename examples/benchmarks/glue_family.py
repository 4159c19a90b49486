"""All sizes of a family on tasks of GLUE and SuperGLUE, beside fine-tuning alone and a distillation for each size.

Three ways to the same sizes, in as many epochs of the same rows, with the same settings:

- family: one run, the full model first and then all sizes together;
- alone: the pretrained checkpoint, fine-tuned by transformers' `Trainer`;
- separate: that model as the teacher of each smaller size, which begins at the pretrained weights of the layers and
  units that the family's size has.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import torch
from fine_tuning import fine_tuning_arguments
from results import report
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

from hf_elastic import ElasticTrainer, SubnetConfig, Teacher, convert, extract
from hf_elastic.compression.rank import reorder_units
from hf_elastic.tasks.averages import mean_score
from hf_elastic.tasks.bbc_news import minilm_checkpoint
from hf_elastic.tasks.benchmark_request import BenchmarkRequest
from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.task_data import TaskData, read_task, split_rows
from hf_elastic.tasks.task_run import TaskRun
from hf_elastic.tasks.task_training import prepare_task, train_on_task

SIZES = {
    "large": {},
    "base": {"width": 0.5},
    "small": {"width": 0.5, "depth": 0.5},
    "tiny": {"width": 0.25, "depth": 0.5},
}
GLUE, SUPER_GLUE = ["cola", "sst2", "mrpc", "stsb", "mnli", "rte"], ["boolq", "cb", "copa", "multirc", "wsc"]
# The head learns as fast as the rest, as it does in transformers' Trainer.
SETTINGS = {"learning_rate": 1e-4, "head_lr_multiplier": 1.0}
# Of long or many rows a part.
TRAIN_ROWS, VALIDATION_ROWS = {"sst2": 8000, "multirc": 1200}, {"multirc": 1200}
MAX_LENGTHS = {"multirc": 384}


def read_rows(name: str, folder: Path) -> TaskData:
    task = find_task("glue" if name in GLUE else "super_glue", name)
    data = read_task(task, folder)
    if name in TRAIN_ROWS:
        data = data.limit(TRAIN_ROWS[name])
    if name in VALIDATION_ROWS:
        rows = data.splits["validation"]
        kept, _ = split_rows(task, rows, 1 - VALIDATION_ROWS[name] / len(rows), seed=0)
        data = data.replaced(validation=rows.select(kept))
    return data


def train_together(data: TaskData, settings) -> tuple[TaskRun, float]:
    """The family, and the processor time of its training."""
    began: dict[str, float] = {}
    run = train_on_task(
        minilm_checkpoint(),
        data,
        settings,
        SIZES,
        on_phase=lambda phase: began.setdefault(phase, time.process_time()),
    )
    return run, began["predict"] - began["fine-tune"]


def train_alone(data: TaskData, settings) -> tuple[Trainer, float, float]:
    """The full model as transformers trains it, its score, and the processor time."""
    task = data.task
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare_task(minilm_checkpoint(), data, settings, folder, SIZES)
    of_head = {"sequence-classification": AutoModelForSequenceClassification}
    model_class = of_head.get(task.input_format.head, AutoModelForMultipleChoice)
    set_seed(settings.seed)
    prepared["model"] = model_class.from_pretrained(minilm_checkpoint(), **task.labels.model_settings)
    if task.input_format.head == "sequence-classification":
        del prepared["data_collator"]  # it is unpadded for ours alone
    epochs = settings.finetune_epochs + settings.cotrain_epochs
    prepared["args"] = fine_tuning_arguments(TrainingArguments, epochs, settings.seed, settings.batch_size)
    prepared["args"].learning_rate = settings.learning_rate
    trainer = Trainer(**prepared)
    start = time.process_time()
    trainer.train()
    seconds = time.process_time() - start
    trainer.args.train_sampling_strategy = "random"  # or the rows are evaluated in another order than theirs
    return trainer, mean_score(task, evaluated(trainer)), seconds


def train_separately(data: TaskData, settings, teacher: Teacher, importance) -> tuple[dict[str, float], float]:
    """The score of each smaller size, and the processor time of their trainings."""
    scores, seconds = {}, 0.0
    epochs = settings.finetune_epochs + settings.cotrain_epochs
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare_task(minilm_checkpoint(), data, settings, folder, SIZES)
        supernet = prepared["model"]
        reorder_units(supernet, importance)
        for name in [name for name in SIZES if name != "large"]:
            student = extract(supernet, name)
            student.config.subnets = {name: SubnetConfig()}
            args = settings.arguments(folder, num_train_epochs=epochs)
            trainer = ElasticTrainer(**{**prepared, "model": student, "args": args}, teachers=[teacher])
            start = time.process_time()
            trainer.train()
            seconds += time.process_time() - start
            scores[name] = mean_score(data.task, evaluated(trainer))
    return scores, seconds


def evaluated(trainer: Trainer) -> dict[str, float]:
    return {name.removeprefix("eval_"): value for name, value in trainer.evaluate().items()}


def run_task(name: str, seed: int, folder: Path) -> dict:
    """Scores and seconds of the three ways."""
    data = read_rows(name, folder)
    given = {**SETTINGS, **({"max_length": MAX_LENGTHS[name]} if name in MAX_LENGTHS else {})}
    settings = BenchmarkRequest(data.task.benchmark, "", settings=given).settings_for(data.task, seed)
    run, family_seconds = train_together(data, settings)
    split = data.scored_splits[0]
    family = {size: mean_score(data.task, run.scores[split][size]) for size in SIZES}
    stock, alone, alone_seconds = train_alone(data, settings)
    teacher = Teacher(convert(stock.model))
    separate, separate_seconds = train_separately(data, settings, teacher, run.importance)
    return {
        "task": name,
        "seed": seed,
        "settings": SETTINGS,
        "rows": len(data.train),
        "family": family,
        "alone": alone,
        "separate": separate,
        "seconds": {"family": family_seconds, "alone": alone_seconds, "separate": separate_seconds},
    }


def spread(values: list[float]) -> str:
    """Mean and standard deviation in percent."""
    text = f"{100 * statistics.mean(values):.1f}"
    return text + (f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else "")


def table(runs: list[dict]) -> list[list[str]]:
    """A row for each task, family / other way, and one for the averages over the tasks."""
    by_task = defaultdict(list)
    for run in runs:
        by_task[run["task"]].append(run)
    rows, means = [], defaultdict(list)
    for task in [task for task in [*GLUE, *SUPER_GLUE] if task in by_task]:
        seeds, cells = by_task[task], []
        for size in SIZES:
            family = [run["family"][size] for run in seeds]
            other = [run["alone"] if size == "large" else run["separate"][size] for run in seeds]
            cells.append(f"{spread(family)} / {spread(other)}")
            means["family", size].append(statistics.mean(family))
            means["other", size].append(statistics.mean(other))
        ratio = statistics.mean(time_ratio(run) for run in seeds)
        means["time", ""].append(ratio)
        rows.append([task, str(seeds[0]["rows"]), str(len(seeds)), *cells, f"{ratio:.2f}"])
    average = {key: statistics.mean(values) for key, values in means.items()}
    cells = [f"{100 * average['family', size]:.1f} / {100 * average['other', size]:.1f}" for size in SIZES]
    rows.append(["average", "", "", *cells, f"{average['time', '']:.2f}"])
    kept = [f"{100 * average['family', size] / average['family', 'large']:.1f}%" for size in SIZES]
    rows.append(["kept of the largest", "", "", *kept, ""])
    return rows


def time_ratio(run: dict) -> float:
    seconds = run["seconds"]
    return seconds["family"] / (seconds["alone"] + seconds["separate"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with glue/<task>/*.parquet")
    parser.add_argument("--tasks", nargs="+", choices=[*GLUE, *SUPER_GLUE], default=[*GLUE, *SUPER_GLUE])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument(
        "--scores",
        type=Path,
        default=Path(__file__).with_name("scores") / "glue_family.jsonl",
        help="what is there already is not run again",
    )
    options = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    options.scores.parent.mkdir(exist_ok=True)
    for seed in options.seeds:
        for task in options.tasks:
            done = read_runs(options.scores)
            if any((run["task"], run["seed"], run["settings"]) == (task, seed, SETTINGS) for run in done):
                continue
            run = run_task(task, seed, options.data)
            print(run, flush=True)
            with options.scores.open("a") as file:
                file.write(json.dumps(run) + "\n")
    header = ["task", "training rows", "seeds", *SIZES, "time"]
    notes = (
        "MiniLM-L6 (22.7M parameters). Validation scores in percent (the mean of a task's metrics; MNLI matched), "
        "mean and standard deviation of the seeds: a size of the family / the checkpoint fine-tuned alone by "
        "`Trainer` (large), or that size distilled alone from it (the others), all in as many epochs. Time: the "
        "processor time of training the family, divided by that of fine-tuning alone, which computes its padding as "
        "well, and the three distillations. "
        "Targets: base keeps 98% of the largest one's average, small 95%, tiny 90%; sizes on average no worse than "
        "separate ones, in at most 0.60 of the time; the largest no worse than alone by more than 0.3 points. "
        f"MultiRC: a part of its rows, {TRAIN_ROWS['multirc']} to train on and {VALIDATION_ROWS['multirc']} to "
        f"evaluate on, cut to {MAX_LENGTHS['multirc']} tokens."
    )
    report("glue_family.py", "GLUE and SuperGLUE", header, table(read_runs(options.scores)), notes)


def read_runs(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
