"""A check of everything that a training needs, before it costs hours.

What is distinctive: the checks use the trainer itself, its data, steps and checkpoints, and take everything back.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

from accelerate.utils import gather_object
from tqdm.auto import tqdm
from transformers.utils import logging

from .micro_batches import remember_random_state
from .preflight_checks import Preflight, check_communication, check_data, check_evaluation, check_sizes
from .preflight_report import FAILED, PASSED, SKIPPED, CheckFailed, CheckResult, CheckSkipped, Finding, PreflightReport
from .preflight_trainings import check_checkpoint, check_duration, check_loss, check_memory
from .progress import without_inner_bars
from .trainer import ElasticTrainer
from .trials import restored

logger = logging.get_logger(__name__)


class _Check(NamedTuple):
    """A check, those that it needs to have passed, and what to do if it raises an error of its own."""

    name: str
    run: Callable[[Preflight], Finding]
    needs: tuple[str, ...]
    remedy: str
    runs_model: bool = True
    trains: bool = False


_CHECKS = (
    _Check("communication", check_communication, (), "Check the network and ddp_backend.", runs_model=False),
    _Check("data", check_data, (), "Mend the data set or the data collator.", runs_model=False),
    _Check("sizes", check_sizes, ("data",), "Mend what the rows, the collator or the model do not agree on."),
    _Check("evaluation", check_evaluation, ("sizes",), "Mend compute_metrics or the evaluation data."),
    _Check("loss", check_loss, ("sizes",), "Mend what stops the training step.", trains=True),
    _Check("checkpoint", check_checkpoint, ("sizes",), "Check that output_dir can be written to.", trains=True),
    _Check("memory", check_memory, ("sizes",), "Mend what stops the training step.", trains=True),
    _Check("duration", check_duration, ("sizes",), "Mend what stops the training step.", trains=True),
)


def check_training(trainer: ElasticTrainer, steps: int = 10, quick: bool = False) -> PreflightReport:
    """Checks a prepared training, and leaves no trace.

    - `communication`: all processes add up known numbers, and agree on seed, sizes, data and weights.
    - `data`: the first, the longest and random rows can be collated; tokens and labels are in range.
    - `sizes`: every size runs them, with finite outputs of the same shape.
    - `evaluation`: a few rows are evaluated, and give the metric that chooses the best checkpoint.
    - `loss`: the loss of every size falls in a few steps on one repeated batch.
    - `checkpoint`: a training that is resumed from a checkpoint gives the weights of an unbroken one, bit for bit.
    - `memory`: steps on the longest rows at the real batch size fit.
    - `duration`: how long the whole training will take.

    A check that fails does not stop the others, unless they depend on it. Weights, optimizer, state, random numbers
    and output folder of the trainer are as before afterwards, bit for bit. What is not put back: a data set or
    collator with a generator of its own has moved on.

    Where the processes do not fail together, e.g. because one of them runs out of memory, the others wait for it until
    the timeout of their communication (`ddp_timeout`), as in the training itself. With FSDP and DeepSpeed, which split
    the weights, only the first two checks run.

    Args:
        trainer ([`ElasticTrainer`]):
            The trainer, before or after a training.
        steps (`int`, defaults to 10):
            Steps in which the loss has to fall.
        quick (`bool`, defaults to `False`):
            Only the checks that do not train, which take seconds: the first four.

    Returns:
        [`PreflightReport`]: The verdict of every check, the same in every process.

    Raises:
        ValueError: If there are fewer than 2 steps, or no training data.

    Example:
        >>> check_training(trainer).raise_if_failed()
        >>> trainer.train()
    """
    if steps < 2:
        raise ValueError(f"steps={steps} show no trend. Give 2 or more, e.g. 10.")
    if trainer.train_dataset is None:
        raise ValueError("The trainer has no train_dataset, so that there is no training to check. Give it one.")
    flight, results = Preflight(trainer, steps), {}
    checks = [check for check in _CHECKS if not (quick and check.trains)]
    is_silent = trainer.args.disable_tqdm or not trainer.is_local_process_zero()
    for check in tqdm(checks, desc="Pre-flight", disable=is_silent):
        missing = [name for name in check.needs if results[name].verdict != PASSED]
        if missing:
            result = CheckResult(check.name, SKIPPED, f"It needs {missing[0]} to pass.")
        else:
            result = _agree(_run(check, flight), trainer)
        logger.info(f"Pre-flight: {result.name} {result.verdict}. {result.seen}")
        results[check.name] = result
    return PreflightReport(tuple(results.values()))


def _run(check: _Check, flight: Preflight) -> CheckResult:
    start, trainer = time.perf_counter(), flight.trainer
    rewind = remember_random_state(trainer.args.device)
    try:
        if check.runs_model and (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
            raise CheckSkipped("FSDP or DeepSpeed split the weights, which could not be put back.")
        with without_inner_bars(), restored(trainer) if check.runs_model else nullcontext():
            finding = check.run(flight)
        result = CheckResult(check.name, PASSED, finding.seen, finding.figures)
    except CheckSkipped as reason:
        result = CheckResult(check.name, SKIPPED, str(reason))
    except CheckFailed as fault:
        result = CheckResult(check.name, FAILED, fault.seen, fault.figures, fault.remedy)
    except Exception as error:
        logger.debug(f"Pre-flight: {check.name}", exc_info=True)
        message = " ".join(str(error).split())
        result = CheckResult(check.name, FAILED, f"{type(error).__name__}: {message}", {}, check.remedy)
    rewind()
    return replace(result, seconds=time.perf_counter() - start)


def _agree(result: CheckResult, trainer: ElasticTrainer) -> CheckResult:
    """The worst of what the processes found: a failure in any of them is one of all."""
    if trainer.accelerator.num_processes == 1:
        return result
    results = gather_object([result])
    for process, other in enumerate(results):
        if other.verdict == FAILED:
            return replace(other, seen=f"Process {process}: {other.seen}")
    return results[0]
