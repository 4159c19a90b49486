"""Runs the variants of a benchmark in processes of their own, so that each has its own peak of memory."""

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
from transformers import Trainer


def run_variant(script: str, variant: str, options: argparse.Namespace) -> dict[str, float]:
    """Runs a script for one variant, and gives the figures that it prints as its last line of JSON."""
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in vars(options).items() if value is not None]
    command = [sys.executable, script, *arguments, f"--variant={variant}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(next(line for line in done.stdout.splitlines()[::-1] if line.startswith("{")))
    print(variant, result, flush=True)
    return result


def measure_training(trainer: Trainer, device: str) -> dict[str, float]:
    """Trains, and gives the seconds that it took (of the processor, on a CPU) and the MiB that it needed more."""
    on_gpu = device == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    memory, start = _peak_memory(on_gpu), clock()
    trainer.train()
    return {"seconds": clock() - start, "memory": _peak_memory(on_gpu) - memory}


def _peak_memory(on_gpu: bool) -> float:
    """The most memory so far in MiB."""
    if on_gpu:
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
