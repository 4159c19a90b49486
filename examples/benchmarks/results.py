"""Writes a benchmark's table into RESULTS.md, in place of its former one, with the machine and the date."""

import datetime
import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from rich.console import Console
from rich.table import Table

from hf_elastic.compression.processor import processor_name

RESULTS = Path(__file__).with_name("RESULTS.md")


def report(script: str, title: str, header: Sequence[str], rows: Sequence[Sequence[str]], notes: str) -> None:
    """Prints the table and writes it to RESULTS.md as the section of this script."""
    table = Table(*header, title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    conditions = (
        f"{datetime.date.today()}, {processor_name(torch.device('cpu'))}, {os.cpu_count()} cores, torch "
        f"{torch.__version__}, transformers {transformers.__version__}."
    )
    lines = [
        f"## {title}",
        "",
        f"`python examples/benchmarks/{script}`. {conditions}",
        "",
        notes,
        "",
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]
    text = RESULTS.read_text() if RESULTS.exists() else "# Benchmark results\n"
    former = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    section = "\n".join(lines) + "\n"
    text = former.sub(lambda _: section, text) if former.search(text) else text.rstrip("\n") + "\n\n" + section
    RESULTS.write_text(text.rstrip("\n") + "\n")
