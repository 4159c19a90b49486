"""The checks before a training that train: the loss falls, a checkpoint resumes, memory and time suffice."""

import math
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, cycle, islice
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from .budget import TrainingBudget
from .callbacks import callbacks_for
from .early_stopping import CostAwareEarlyStopping
from .memory import MemoryUse, peak_memory, reset_peak_memory
from .micro_batches import is_out_of_memory
from .preflight_checks import Preflight, few_rows
from .preflight_report import CheckFailed, CheckSkipped, Finding
from .processes import max_over_processes
from .subnet_number import AdaptSubnetNumber
from .trainer import ElasticTrainer
from .trials import make_trial, restored

# Rows of the batch that is repeated: enough to learn from, few enough to be quick.
_REPEATED_ROWS = 16
# The loss of a size may rise by this share of the mean loss: a size that is fitted already gives way to others.
_TOLERANCE = 0.05
# Steps before the checkpoint, and as many after it.
_STEPS_TO_RESUME = 2
# How many times the distance of two unbroken trainings a resumed one may be away, where kernels are not exact.
_NOISE = 10
# The first step warms up.
_MEASURED_STEPS = 3
# Of the memory; what is left is needed for batches of another shape.
_FULL = 0.95
_OF_WHOLE_TRAININGS = (TrainingBudget, CostAwareEarlyStopping, AdaptSubnetNumber)
_WITHOUT_WORKERS = {
    "dataloader_num_workers": 0,
    "dataloader_persistent_workers": False,
    "dataloader_prefetch_factor": None,
    "train_sampling_strategy": "sequential",
}


def check_loss(flight: Preflight) -> Finding:
    """Trains all sizes on one repeated batch, at the learning rate of the arguments; the loss of each has to fall."""
    trainer = flight.trainer
    if trainer.args.task_weight == 0:
        raise CheckSkipped("task_weight=0: the labels are not what is learned from.")
    rows = flight.rows.rows[: min(trainer.args.train_batch_size, _REPEATED_ROWS)]
    batch = flight.collate(rows)
    watcher = _LossWatcher(flight, batch)
    settings = {
        **_WITHOUT_WORKERS,
        "max_steps": flight.steps,
        "per_device_train_batch_size": len(rows),
        "gradient_accumulation_steps": 1,
        "sampling": "joint",
    }
    trial = _make_training(trainer, settings, [watcher])
    trial.train_dataset = rows * (flight.steps * trainer.args.world_size)
    trial._train_batch_size = len(rows)
    trial.data_collator = lambda _: dict(batch)
    trial.lr_scheduler = LambdaLR(trial.create_optimizer(), lambda step: 1.0)
    trial.train()
    weights = trainer.args.subnet_weights
    return _judge(flight, {name: losses for name, losses in watcher.losses.items() if weights.get(name, 1)})


def _judge(flight: Preflight, losses: dict[str, list[float]]) -> Finding:
    """Compares the loss of each size before the training with the mean over the second half of it."""
    rate, half = flight.trainer.args.learning_rate, flight.steps // 2
    before = {name: of_size[0] for name, of_size in losses.items()}
    after = {name: mean(of_size[-half:]) for name, of_size in losses.items()}
    figures = {"learning_rate": rate, "before": before, "after": after}
    tolerance = _TOLERANCE * sum(before.values()) / len(before)
    for name in before:
        rises = not after[name] < before[name] + tolerance  # also true of what is no number
        if rises or after[name] == before[name]:
            raise CheckFailed(
                f"The loss of size {name!r} does not fall in {flight.steps} steps on one batch: {before[name]:.4g} "
                f"before, {after[name]:.4g} after, at learning_rate={rate:g}.",
                "Choose another learning rate (find_learning_rate suggests one), and look whether the labels belong "
                "to their rows and which weights are frozen.",
                figures,
            )
    if not sum(after.values()) < sum(before.values()):
        raise CheckFailed(
            f"The losses of all sizes do not fall in {flight.steps} steps on one batch, at learning_rate={rate:g}.",
            "Choose another learning rate (find_learning_rate suggests one).",
            figures,
        )
    seen = ", ".join(f"{name} {before[name]:.3g} to {after[name]:.3g}" for name in before)
    return Finding(f"{flight.steps} steps on one batch: {seen}.", figures)


def check_checkpoint(flight: Preflight) -> Finding:
    """Trains with a checkpoint in the middle, resumes from it, and compares the weights at the end, bit for bit."""
    trainer = flight.trainer
    if trainer.args.save_only_model:
        raise CheckSkipped("save_only_model=True: without the optimizer no training can be resumed.")
    steps = _STEPS_TO_RESUME
    with _temporary_folder(trainer) as folder, _deterministic_kernels():
        unbroken = _train_and_save(trainer, folder)
        checkpoint = folder / f"{PREFIX_CHECKPOINT_DIR}-{steps}"
        size = sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file())
        free = shutil.disk_usage(folder).free
        distance = _distance(_train_and_save(trainer, folder, resume_from=checkpoint), unbroken)
        distance = max_over_processes(distance, trainer.args.device)  # all of them have to train once more, or none
        noise = _distance(_train_and_save(trainer, folder), unbroken) if distance else 0.0
    figures = {"distance": distance, "noise": noise, "checkpoint_bytes": size, "free_bytes": free}
    if distance and (trainer.args.device.type == "cpu" or distance > _NOISE * noise):
        repeated = f", and so has a second unbroken one, by {noise:.2g}" if noise else ""
        raise CheckFailed(
            f"A training resumed at step {steps} has other weights than an unbroken one after step {2 * steps}, by up "
            f"to {distance:.2g}{repeated}.",
            "Look for random numbers that do not come from Python, NumPy or torch, e.g. of a generator of the data "
            "set or the collator, and for callbacks whose state is not saved.",
            figures,
        )
    # Some kernels add up in any order, which is not the checkpoint's fault.
    alike = f"as closely ({distance:.1g}) as kernels allow that are not exact ({noise:.1g})" if distance else "exactly"
    return Finding(
        f"{steps} steps after it was saved, a resumed training has the weights of an unbroken one {alike}. "
        f"A checkpoint takes {size / 1e6:,.1f} MB, and {free / 1e9:,.0f} GB are free.",
        figures,
    )


def check_memory(flight: Preflight) -> Finding:
    """Runs steps of the longest rows at the real batch size, and compares the peak with the memory there is."""
    trainer, args = flight.trainer, flight.trainer.args
    accumulated = min(args.gradient_accumulation_steps, 2)  # the second batch runs beside the gradients of the first
    full, sampler = flight.trial.full_name, flight.trial.sampler
    steps = max(_MEASURED_STEPS, 1 + next(step for step in count() if full in sampler.draw(step)))
    meter = _StepMeter()
    settings = {**_WITHOUT_WORKERS, "max_steps": steps, "gradient_accumulation_steps": accumulated}
    number = args.train_batch_size * accumulated * args.world_size * steps
    longest = int(flight.rows.lengths.max(initial=0))
    what = f"{args.train_batch_size} rows of {longest} tokens"
    try:
        trial = _make_training(trainer, settings, [meter])
        trial.train_dataset = list(islice(cycle(flight.rows.longest), number))
        trial.train()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise CheckFailed(
            f"A step on {what} runs out of memory.",
            "Set adapt_micro_batch_size=True or a micro_batch_size, activation_checkpointing=True or bf16=True, or "
            "cut the texts (max_length).",
        ) from None
    peak, seconds = meter.peak, meter.typical_seconds * args.gradient_accumulation_steps / accumulated
    figures = {"used_bytes": peak.used, "limit_bytes": peak.limit, "seconds_per_step": seconds}
    used, limit = peak.used / 1e9, peak.limit / 1e9
    seen = f"{what}: {used:.2f} of {limit:.2f} GB in use at the peak ({peak.share:.0%}), by whatever else runs as well"
    if peak.share > _FULL:
        raise CheckFailed(
            f"{seen}, with little left for other batches.",
            "Set micro_batch_size, activation_checkpointing=True or bf16=True, or end what else uses the memory.",
            figures,
        )
    return Finding(f"{seen}, {seconds:.2g} s a step.", figures)


def check_duration(flight: Preflight) -> Finding:
    """Runs steps on ordinary batches, and projects how long the training takes without evaluations and checkpoints."""
    trainer, args, meter = flight.trainer, flight.trainer.args, _StepMeter()
    trial = _make_training(trainer, {"max_steps": _MEASURED_STEPS}, [meter])
    trial.train()
    planned = trial.set_initial_training_values(args, trial.callback_handler.train_dataloader)[-1]
    allowed = math.inf if args.max_examples is None else args.max_examples / trial.get_total_train_batch_size(args)
    steps = math.ceil(min(allowed, planned))
    seconds = meter.typical_seconds
    total = steps * seconds
    seen = f"{steps:,} steps of {seconds:.2g} s: {_as_time(total)}, besides evaluations and checkpoints."
    if steps < planned:
        seen += f" max_examples={args.max_examples} ends it after these of {planned:,} steps."
    if args.max_minutes is not None and 60 * args.max_minutes < total:
        seen += f" max_minutes={args.max_minutes:g} ends it after {60 * args.max_minutes / total:.0%} of them."
    return Finding(seen, {"steps": steps, "seconds_per_step": seconds, "seconds": total})


def _make_training(
    trainer: ElasticTrainer, settings: dict[str, Any], callbacks: list[TrainerCallback]
) -> ElasticTrainer:
    """A trial training with the mechanisms that the arguments ask for, but those that end it or follow its time."""
    trial = make_trial(
        trainer, {"teacher_cache_dir": None, **settings}, callbacks
    )  # the cache is the training's to fill
    trial.eval_dataset = few_rows(trainer.eval_dataset, trainer.args.seed)  # by which teachers may be weighed
    for callback in callbacks_for(trial.args):
        if not isinstance(callback, _OF_WHOLE_TRAININGS):
            trial.add_callback(callback)
    return trial


def _train_and_save(trainer: ElasticTrainer, folder: Path, resume_from: Path | None = None) -> dict[str, Tensor]:
    """Trains as a new process would, with a checkpoint in the middle, and gives the weights at the end."""
    settings = {
        "output_dir": str(folder),
        "max_steps": 2 * _STEPS_TO_RESUME,
        "save_strategy": "steps",
        "save_steps": _STEPS_TO_RESUME,
        "save_total_limit": None,
    }
    with restored(trainer):
        trial = _make_training(trainer, settings, [])
        set_seed(trainer.args.seed)
        trial.train(resume_from_checkpoint=None if resume_from is None else str(resume_from))
        return {name: value.detach().to("cpu", copy=True) for name, value in trial.model.state_dict().items()}


def _distance(weights: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    """The largest difference between two sets of weights."""
    return max((weights[name].double() - others[name].double()).abs().max().item() for name in weights)


@contextmanager
def _temporary_folder(trainer: ElasticTrainer) -> Iterator[Path]:
    """A folder for checkpoints on the disk that those of the training will lie on, the same one in every process."""
    accelerator, folder = trainer.accelerator, [None]
    if accelerator.is_main_process:
        output_dir = Path(trainer.args.output_dir).absolute()
        nearest = next(path for path in (output_dir, *output_dir.parents) if path.is_dir())
        folder = [tempfile.mkdtemp(prefix="preflight-", dir=nearest)]
    if accelerator.num_processes > 1:
        broadcast_object_list(folder)
    try:
        yield Path(folder[0])
    finally:
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            shutil.rmtree(folder[0])


@contextmanager
def _deterministic_kernels() -> Iterator[None]:
    """Where torch has the choice, on a GPU, kernels that give the same sum each time."""
    enabled, only_warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*deterministic")
            torch.use_deterministic_algorithms(True, warn_only=True)
            yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=only_warns)


def _as_time(seconds: float) -> str:
    """Seconds in words."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


class _LossWatcher(TrainerCallback):
    """Takes down the loss of every size on a batch, before the training and after each step, without dropout."""

    def __init__(self, flight: Preflight, batch: dict[str, Any]) -> None:
        self.flight, self.batch = flight, batch
        self.losses: dict[str, list[float]] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        for name, (loss, _) in self.flight.run_sizes(self.batch).items():
            self.losses.setdefault(name, []).append(loss.item())

    on_step_end = on_train_begin


class _StepMeter(TrainerCallback):
    """Measures the seconds and the peak of the memory of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.peak = MemoryUse(0, 1)

    @property
    def typical_seconds(self) -> float:
        return median(self.seconds[1:] or self.seconds)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        reset_peak_memory(args.device)
        self._began = _now(args.device)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.seconds.append(_now(args.device) - self._began)
        self.peak = max(self.peak, peak_memory(args.device), key=lambda use: use.share)


def _now(device: torch.device) -> float:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()
