"""Runs the variants of a benchmark in processes of their own, so that each has its own peak of memory."""

import argparse
import json
import resource
import subprocess
import sys

import torch


def run_variant(script: str, variant: str, options: argparse.Namespace) -> dict[str, float]:
    """Runs a script for one variant, and gives the figures that it prints as its last line of JSON."""
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in vars(options).items() if value is not None]
    command = [sys.executable, script, *arguments, f"--variant={variant}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(next(line for line in done.stdout.splitlines()[::-1] if line.startswith("{")))
    print(variant, result, flush=True)
    return result


def peak_memory(on_gpu: bool) -> float:
    """Gives the most memory so far in MiB."""
    if on_gpu:
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
