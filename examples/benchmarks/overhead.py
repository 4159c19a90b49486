"""What elasticity costs: against the stock model, against an extracted member, per switch, and at import."""

import statistics
import subprocess
import sys
import time

import torch
from results import report
from timing import compare, keep_freed_memory
from transformers import AutoModel
from transformers.utils import logging

from hf_elastic import SubnetConfig, convert, extract
from hf_elastic.tasks.bbc_news import minilm_checkpoint

LENGTH = 128
REPEATS = {1: 200, 16: 40}


def import_seconds(module: str) -> float:
    code = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def import_rows() -> list[list[str]]:
    modules = ("hf_elastic", "transformers", "transformers, hf_elastic")
    times = [[import_seconds(module) for module in modules] for _ in range(15)]
    alone, stock, both = (1000 * statistics.median(column) for column in zip(*times, strict=True))
    rows = []
    for name, value in (("import hf_elastic", alone), ("import transformers, hf_elastic", both)):
        rows.append([f"{name} / import transformers", f"{value:.0f}", f"{stock:.0f}", f"{value / stock:.3f}", "1.10"])
    return rows


def switch_milliseconds(model) -> float:
    start = time.process_time()
    for _ in range(1000):
        with model.use_subnet("tiny"):
            pass
    return time.process_time() - start  # seconds per thousand switches are milliseconds per switch


@torch.inference_mode()
def main() -> None:
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    keep_freed_memory()
    stock = AutoModel.from_pretrained(minilm_checkpoint()).eval()
    model = convert(stock)
    model.config.subnets = {
        "base": SubnetConfig.scaled(model.config, width=0.75),
        "small": SubnetConfig.scaled(model.config, width=0.5, depth=0.67),
        "tiny": SubnetConfig.scaled(model.config, width=0.5, depth=0.34),
    }
    rows = []
    for batch_size, repeats in REPEATS.items():
        inputs = torch.randint(1000, 30000, (batch_size, LENGTH))
        first, second, ratio = compare(lambda i=inputs: model(i), lambda i=inputs: stock(i), repeats)
        name = f"converted full model / BertModel, batch {batch_size}"
        rows.append([name, f"{first:.1f}", f"{second:.1f}", f"{ratio:.3f}", "1.02"])
        for subnet in model.config.subnets:
            member = extract(model, subnet)
            first, second, ratio = compare(
                lambda i=inputs, s=subnet: model(i, subnet=s), lambda i=inputs, m=member: m(i), repeats
            )
            name = f"{subnet} in the supernet / extracted, batch {batch_size}"
            rows.append([name, f"{first:.1f}", f"{second:.1f}", f"{ratio:.3f}", "1.05"])
    rows.append(["switching the size (use_subnet)", f"{switch_milliseconds(model):.4f}", "", "", "1 ms"])
    rows += import_rows()
    notes = (
        f"MiniLM-L6 (hidden 384), float32, {LENGTH} tokens, one thread. Milliseconds of processor time, medians of "
        f"{REPEATS[1]} (batch 1) and {REPEATS[16]} (batch 16) passes in turns; the ratio is the median of the turns. "
        "The allocator keeps freed memory: with its default settings, page faults that depend on the order of earlier "
        "allocations alone moved the ratio at batch 16 between 0.99 and 1.04 from run to run."
    )
    report("overhead.py", "Overhead of elasticity", ["what", "first", "second", "ratio", "target"], rows, notes)


if __name__ == "__main__":
    main()
