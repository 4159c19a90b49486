"""Sparse attention against dense attention, Longformer, BigBird and ModernBERT: time and memory over the length.

`--device cuda` measures on a GPU, compiled and in bfloat16.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from results import report
from timing import keep_freed_memory
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    BertConfig,
    BertModel,
    BigBirdConfig,
    BigBirdModel,
    LongformerConfig,
    LongformerModel,
    ModernBertConfig,
    ModernBertModel,
)
from transformers.utils import logging

from hf_elastic import ElasticConfig, ElasticModel
from hf_elastic.modeling.block_sparse_attention_elastic import BlockPattern, block_sparse_attention
from hf_elastic.modeling.window_attention_elastic import WindowPattern, window_attention

LENGTHS = (512, 1024, 2048, 4096, 8192)
REPEATS = {512: 15, 1024: 11, 2048: 7, 4096: 5, 8192: 3}
WINDOW, GLOBAL_TOKENS, HEADS, HEAD_DIM, LAYERS = 64, 2, 12, 64, 2
SHAPE = {
    "hidden_size": HEADS * HEAD_DIM,
    "num_attention_heads": HEADS,
    "intermediate_size": 3072,
    "num_hidden_layers": LAYERS,
    "vocab_size": 1000,
    "attention_probs_dropout_prob": 0.0,
    "hidden_dropout_prob": 0.0,
}


def cores(length: int) -> dict[str, Callable]:
    scaling = HEAD_DIM**-0.5
    window, with_global = WindowPattern(WINDOW), WindowPattern(WINDOW, num_global_tokens=GLOBAL_TOKENS)
    with_random = WindowPattern(WINDOW, num_global_tokens=GLOBAL_TOKENS, num_random_blocks=3)
    sparsity = torch.full((HEADS,), 0.7, requires_grad=True)
    blocks = BlockPattern(num_global_tokens=GLOBAL_TOKENS, span=4 if length >= 2048 else 2)

    def dynamic(query, key, value):
        learned = sparsity.to(query.device)
        return block_sparse_attention(query, key, value, None, learned, blocks, scaling, training=query.requires_grad)

    return {
        "dense (SDPA)": scaled_dot_product_attention,
        "window": partial(window_attention, padding_mask=None, pattern=window, scaling=scaling),
        "window, 2 global": partial(window_attention, padding_mask=None, pattern=with_global, scaling=scaling),
        "same, 3 random blocks": partial(window_attention, padding_mask=None, pattern=with_random, scaling=scaling),
        "dynamic blocks, 70% sparse": dynamic,
    }


def models(length: int) -> dict[str, Callable[[], torch.nn.Module]]:
    positions = {"max_position_embeddings": length}
    window = {"sliding_window": WINDOW, "num_global_tokens": GLOBAL_TOKENS}
    dense_names = {"attention_dropout": 0.0, "mlp_dropout": 0.0, "pad_token_id": 0, "cls_token_id": 1}
    modernbert = {key: value for key, value in SHAPE.items() if "dropout" not in key} | positions | dense_names
    special = {"bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
    elastic = SHAPE | positions
    return {
        "BERT (SDPA)": lambda: BertModel(BertConfig(**SHAPE, **positions)),
        "elastic, window": lambda: ElasticModel(
            ElasticConfig(**elastic, **window, layer_types=["sliding_attention"] * LAYERS)
        ),
        "elastic, dynamic blocks": lambda: ElasticModel(ElasticConfig(**elastic, sparse_attention=True)),
        "elastic, linear": lambda: ElasticModel(ElasticConfig(**elastic, layer_types=["linear_attention"] * LAYERS)),
        "Longformer": lambda: LongformerModel(
            LongformerConfig(**SHAPE, max_position_embeddings=length + 2, attention_window=2 * WINDOW)
        ),
        "BigBird": lambda: BigBirdModel(BigBirdConfig(**SHAPE, **positions, block_size=64, num_random_blocks=3)),
        "ModernBERT": lambda: ModernBertModel(
            ModernBertConfig(**modernbert, **special, layer_types=["sliding_attention"] * LAYERS)
        ),
    }


def passes(device: str, length: int, names: list[str], backward: bool) -> dict[str, Callable[[], None]]:
    """Gives a function for each variant that runs it once."""
    functions = {}
    generator = torch.Generator().manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    for name in names:
        if name in cores(length):
            function = cores(length)[name]
            states = torch.randn(3, 1, HEADS, length, HEAD_DIM, generator=generator).to(device, dtype).unbind()
            inputs = [state.requires_grad_(backward) for state in states]
        else:
            function = models(length)[name]().to(device, dtype).train(backward)
            inputs = [torch.randint(5, 1000, (1, length), generator=generator).to(device)]
        if device == "cuda":
            function = torch.compile(function)
        functions[name] = partial(run_once, function, inputs, backward)
    return functions


def run_once(function: Callable, inputs: list[torch.Tensor], backward: bool) -> None:
    with torch.set_grad_enabled(backward):
        output = function(*inputs)
        output = output if isinstance(output, torch.Tensor) else output.last_hidden_state
        if backward:
            output.sum().backward()


def seconds(function: Callable[[], None], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        return time.perf_counter() - start
    start = time.process_time()
    function()
    return time.process_time() - start


def measure(device: str, length: int, names: list[str], backward: bool) -> dict[str, tuple[float, float]]:
    """Gives milliseconds and the ratio to the first variant, medians over rounds that run every variant once."""
    functions = passes(device, length, names, backward)
    for function in functions.values():
        function()
    rounds = [
        {name: seconds(function, device) for name, function in functions.items()} for _ in range(REPEATS[length])
    ]
    return {
        name: (
            1000 * statistics.median(times[name] for times in rounds),
            statistics.median(times[names[0]] / times[name] for times in rounds),
        )
        for name in names
    }


def peak_memory(device: str, length: int, name: str) -> int:
    """Gives the growth of a fresh process's memory by one forward and backward pass, in MiB."""
    command = [sys.executable, __file__, "--device", device, "--memory-of", name, "--length", str(length)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_memory(device: str, length: int, name: str) -> None:
    warm = passes(device, 128, [name], backward=True)[name]
    warm()
    function = passes(device, length, [name], backward=True)[name]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        print((torch.cuda.max_memory_allocated() - before) // 2**20)
        return
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of the imports, which is higher
    before = process_memory("VmRSS")
    function()
    print((process_memory("VmHWM") - before) // 2**10)


def process_memory(field: str) -> int:
    """Gives a figure of the process's memory in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", status)[1])


def table(device: str, names: list[str], lengths: list[int]) -> list[list[str]]:
    rows = []
    for length in lengths:
        forward = measure(device, length, names, backward=False)
        both = measure(device, length, names, backward=True)
        for name in names:
            cells = [
                f"{number:.{digits}f}"
                for pair in (forward[name], both[name])
                for number, digits in zip(pair, (1, 2), strict=True)
            ]
            rows.append([str(length), name, *cells, str(peak_memory(device, length, name))])
            print(*rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--memory-of")
    parser.add_argument("--length", type=int)
    options = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    if options.memory_of:
        print_memory(options.device, options.length, options.memory_of)
        return
    if options.device == "cpu":
        keep_freed_memory()
    header = [
        "tokens",
        "what",
        "forward (ms)",
        "times faster",
        "with backward (ms)",
        "times faster",
        "peak memory (MiB)",
    ]
    conditions = "one thread, float32, processor time" if options.device == "cpu" else "compiled, bfloat16"
    notes = (
        f"Batch 1, {HEADS} heads of {HEAD_DIM}, windows of {WINDOW} to each side, {GLOBAL_TOKENS} global tokens; "
        f"{conditions}. Medians over rounds that run every variant once; the ratio is to the first variant. Memory: "
        "growth of a fresh process by one forward and backward pass."
    )
    targets = (
        " Targets: a window 10 times faster at 4096 tokens, 12 times with backward; dynamic blocks 2.7 times from "
        "2048 tokens on."
    )
    suffix = "" if options.device == "cpu" else " on a GPU"
    rows = table(options.device, list(cores(512)), options.lengths)
    report("attention.py", f"Attention{suffix}", header, rows, notes + targets)
    rows = table(options.device, list(models(512)), options.lengths)
    notes += f" Models of {LAYERS} layers, hidden size {SHAPE['hidden_size']}; all of their layers are sparse."
    notes += " Targets: faster than Longformer at every length, and twice as fast as BigBird and ModernBERT at 4096."
    report("attention.py", f"Models with sparse attention{suffix}", header, rows, notes)


if __name__ == "__main__":
    main()
