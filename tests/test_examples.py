"""The examples run as they stand, on a tiny checkpoint and few rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_elastic import load_family
from tests.tasks.benchmark_rows import rows_of, write_task
from tests.tiny_bert import save_tiny_bert

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.parametrize(
    ("script", "benchmark", "task", "options"),
    [
        ("run_glue.py", "glue", "rte", ["--train-rows", "4"]),
        ("run_superglue.py", "super_glue", "copa", ["--seeds", "1", "2"]),
    ],
)
def test_a_benchmark_is_run_exported_and_answered(tmp_path, script, benchmark, task, options):
    texts = [str(text) for row in rows_of(benchmark, task) for text in row.values()]
    model = save_tiny_bert(tmp_path / "bert", texts)
    write_task(tmp_path / "rows", benchmark, task)
    given = {"--task": task, "--model": model, "--data-dir": tmp_path / "rows", "--output-dir": tmp_path / "out"}
    given |= {"--max-length": 32, "--size": "tiny"}
    arguments = [str(part) for option in given.items() for part in option]
    environment = {**os.environ, "HF_DATASETS_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(EXAMPLES.parent)}
    command = [sys.executable, str(EXAMPLES / script), *arguments, *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    for size in ("large", "base", "small", "tiny"):
        assert f" {size}" in done.stdout
    assert load_family(tmp_path / "out" / "family").names == ["tiny"]
    answers = done.stdout.splitlines()[-2:]
    if task == "rte":
        assert all("'label': 'entailment'" in line or "'label': 'not_entailment'" in line for line in answers)
    else:
        assert "| copa | tiny, ensemble of 2 seeds |" in done.stdout
        assert all(line.endswith(("-> choice1", "-> choice2")) for line in answers)


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_is_short(script):
    assert len((EXAMPLES / script).read_text(encoding="utf-8").splitlines()) < 80
