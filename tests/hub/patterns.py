"""Whole cards as patterns, with what differs between runs and machines left open."""

import re
from pathlib import Path

PATTERNS = Path(__file__).parent / "card_patterns"
# `<name>` in a pattern file stands for the expression; all else is literal.
VARIABLE = {
    "ms": r"\d+\.\d",
    "date": r"\d{4}-\d{2}-\d{2}",
    "version": r"\d+\.\d+\.\d+\S*",
    "processor": r"[^,\n]+",
    "threads": r"\d+ threads?",
    "value": r"\d\.\d+(?:e-\d+)?",
    "hash": r"[0-9a-f]{64}",
    "commit": r"(?:, at commit `[0-9a-f]{40}(?:-dirty)?`)?",
    "json": r"\{\n(?:  .*\n)+\}",
}


def card_pattern(name: str) -> str:
    """Gives the expression that a whole card has to match."""
    text = re.escape((PATTERNS / name).read_text())
    return re.sub(f"<({'|'.join(VARIABLE)})>", lambda match: VARIABLE[match[1]], text)
