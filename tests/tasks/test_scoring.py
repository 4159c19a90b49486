"""Scores of answers to rows: what is compared with what, and what cannot be."""

import subprocess
import sys
import warnings
from collections import Counter

import numpy as np
import pytest

from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task
from hf_elastic.tasks.scoring import score

ENTITIES = {
    "passage": "…",
    "query": "@placeholder won.",
    "entities": ["Ann", "Bob"],
    "idx": {"passage": 0, "query": 0},
}


def idx(paragraph: int, question: int, answer: int) -> dict[str, int]:
    return {"paragraph": paragraph, "question": question, "answer": answer}


def labelled(*labels) -> list[dict]:
    return [{"label": label} for label in labels]


def test_labels():
    scores = score(find_task("glue", "mrpc"), labelled(1, 1, 0, 0), [1, 0, 1, 0])
    assert scores == {"accuracy": 0.5, "f1": 0.5}
    assert all(type(value) is float for value in scores.values())


def test_numpy_answers():
    assert score(find_task("glue", "rte"), labelled(1, 0), np.array([1, 1]))["accuracy"] == 0.5
    assert score(find_task("glue", "stsb"), labelled(1.0, 2.0, 3.0), np.float32([3, 2, 1]))[
        "pearson"
    ] == pytest.approx(-1)


def test_answers_of_a_regression_may_be_out_of_range():
    assert score(find_task("glue", "stsb"), labelled(0.0, 5.0), [-1.0, 7.0])["spearman"] == pytest.approx(1.0)


def test_multirc_groups_by_the_question():
    labels = [1, 0, 1]
    rows = [{"idx": idx(0, question, i), "label": labels[i]} for i, question in enumerate([0, 0, 1])]
    assert score(find_task("super_glue", "multirc"), rows, [1, 1, 1]) == {
        "f1_answers": pytest.approx(4 / 5),
        "exact_match": 0.5,
    }


def test_record_compares_texts():
    rows = [{**ENTITIES, "answers": ["Ann", "Ann Lee"]}, {**ENTITIES, "answers": ["Bob Ray"]}]
    assert score(find_task("super_glue", "record"), rows, ["ann", "the Bob"]) == {
        "f1": pytest.approx((1 + 2 / 3) / 2),
        "exact_match": 0.5,
    }


def test_winogender_pairs_rows_by_idx():
    rows = [{"idx": i, "premise": "…", "hypothesis": f"h{i // 2}", "label": 0} for i in (3, 0, 1, 2)]
    assert score(find_task("super_glue", "axg"), rows, [1, 0, 0, 0]) == {"accuracy": 0.75, "gender_parity": 0.5}


def test_the_diagnostics_correlate():
    perfect = {"matthews_correlation": pytest.approx(1.0)}
    assert score(find_task("super_glue", "axb"), labelled(0, 1, 1), [0, 1, 1]) == perfect
    assert score(find_task("glue", "ax"), labelled(0, 1, 2), [0, 1, 2]) == perfect


def test_constant_answers_or_labels_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert score(find_task("glue", "cola"), labelled(1, 1), [1, 1]) == {"matthews_correlation": 0.0}
        assert score(find_task("glue", "stsb"), labelled(1.0, 4.0), [2, 2]) == {"pearson": 0.0, "spearman": 0.0}
        assert score(find_task("glue", "qqp"), labelled(0, 0), [0, 0]) == {"accuracy": 1.0, "f1": 0.0}


@pytest.mark.parametrize(
    ("name", "rows", "answers", "message"),
    [
        ("rte", labelled(0, 1), [0], "1 answers to 2 rows of rte"),
        ("rte", [], [], "no rows of rte"),
        (
            "rte",
            labelled(0, -1, -1),
            [0, 0, 0],
            r"2 of 3 rows of rte have no label.*row 1.*label=-1.*predictions only",
        ),
        ("rte", labelled(0, None), [0, 0], "label=None.*predictions only"),
        ("rte", [{"premise": "…"}], [0], "label=None.*predictions only"),
        ("rte", labelled(0, 2), [0, 0], r"label=2 in row 1 of rte is not in 0\.\.1"),
        ("rte", labelled("entailment"), [0], "label='entailment' in row 0"),
        ("rte", labelled(0.5), [0], "label=0.5 in row 0"),
        ("rte", labelled(0, 1), [0, 2], r"The answer 2 to row 1 of rte is not a label id in 0\.\.1"),
        ("rte", labelled(0), [-1], "The answer -1 to row 0"),
        ("rte", labelled(0), [float("nan")], "The answer nan to row 0"),
        ("rte", labelled(0), ["entailment"], "The answer 'entailment' to row 0"),
        ("record", [{**ENTITIES, "answers": []}], ["Ann"], r"answers=\[\].*predictions only"),
        ("record", [{**ENTITIES, "answers": ["Ann"]}], [0], "The answer 0 to row 0 of record is not the text"),
    ],
)
def test_what_cannot_be_scored(name, rows, answers, message):
    with pytest.raises(ValueError, match=message):
        score(find_task("super_glue", name), rows, answers)


@pytest.mark.parametrize(
    ("label", "answer", "message"),
    [
        (-1.0, 1.0, r"label=-1\.0.*predictions only"),
        (5.5, 1.0, r"label=5\.5 in row 0 of stsb is not in 0\.0\.\.5\.0"),
        (float("nan"), 1.0, "label=nan in row 0"),
        (1.0, float("nan"), "The answer nan to row 0 of stsb is not a finite number"),
        (1.0, float("inf"), "The answer inf"),
        (1.0, None, "The answer None"),
    ],
)
def test_numbers_that_cannot_be_scored(label, answer, message):
    with pytest.raises(ValueError, match=message):
        score(find_task("glue", "stsb"), labelled(label), [answer])


def test_nothing_is_left_in_the_cache(tmp_path, monkeypatch):
    import evaluate

    monkeypatch.setattr(evaluate.config, "HF_METRICS_CACHE", tmp_path / "metrics")
    score(find_task("glue", "rte"), labelled(0), [0])
    assert not (tmp_path / "metrics").exists()


def test_describing_scores_imports_nothing_heavy():
    code = (
        "import sys, hf_elastic.tasks.scoring, hf_elastic.tasks.averages; "
        "print([m for m in ('torch', 'transformers', 'evaluate', 'datasets', 'sklearn', 'scipy') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def test_without_evaluate():
    code = (
        "import sys; sys.modules['evaluate'] = None\n"
        "from hf_elastic.tasks.benchmarks import find_task\n"
        "from hf_elastic.tasks.scoring import score\n"
        "score(find_task('glue', 'rte'), [{'label': 0}], [0])"
    )
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert failed.returncode == 1
    assert 'pip install "hf_elastic[data]"' in failed.stderr


# Rows of a split, and of them those with the commonest label, as published.
COUNTS = {
    ("glue", "cola", "validation"): (1043, 1, 721),
    ("glue", "sst2", "validation"): (872, 1, 444),
    ("glue", "mrpc", "validation"): (408, 1, 279),
    ("glue", "mnli", "validation_matched"): (9815, 0, 3479),
    ("glue", "rte", "validation"): (277, 0, 146),
    ("glue", "wnli", "validation"): (71, 0, 40),
    ("super_glue", "boolq", "validation"): (3270, 1, 2033),
    ("super_glue", "cb", "validation"): (56, 1, 28),
    ("super_glue", "copa", "validation"): (100, 0, 55),
    ("super_glue", "multirc", "validation"): (4848, 0, 2773),
    ("super_glue", "rte", "validation"): (277, 0, 146),
    ("super_glue", "wsc", "validation"): (104, 0, 66),
    ("super_glue", "wsc.fixed", "validation"): (104, 0, 66),
}


def read(glue, benchmark: str, name: str, split: str) -> list[dict]:
    import pyarrow.parquet

    path = glue.parent / benchmark / name / f"{split}.parquet"
    if not path.exists():
        pytest.skip(f"no rows of {name} at {path}")
    return pyarrow.parquet.read_table(path).to_pylist()


@pytest.mark.parametrize(("benchmark", "name", "split"), COUNTS)
def test_the_commonest_label_scores_its_share_of_real_rows(glue, benchmark, name, split):
    count, label, right = COUNTS[benchmark, name, split]
    rows, task = read(glue, benchmark, name, split), find_task(benchmark, name)
    scores = score(task, rows, [label] * count)
    f1 = 2 * right / (count + right)  # precision right / count, recall 1
    whole_questions = Counter((row["idx"]["paragraph"], row["idx"]["question"]) for row in rows if name == "multirc")
    wrong = {(row["idx"]["paragraph"], row["idx"]["question"]) for row in rows if name == "multirc" and row["label"]}
    expected = {
        "accuracy": right / count,
        "f1": f1,
        "f1_macro": f1 / len(task.label_names),
        "matthews_correlation": 0.0,
        "f1_answers": 0.0,  # the label 1 is never answered
        "exact_match": 1 - len(wrong) / max(1, len(whole_questions)),
    }
    assert scores == {metric: pytest.approx(expected[metric]) for metric in task.metrics}


def test_real_stsb_and_record(glue):
    rows = read(glue, "glue", "stsb", "validation")
    labels = [row["label"] for row in rows]
    assert score(find_task("glue", "stsb"), rows, labels) == {
        name: pytest.approx(1) for name in ("pearson", "spearman")
    }
    rows = read(glue, "super_glue", "record", "train")
    answers = [row["answers"][-1].upper() + "." for row in rows]
    assert score(find_task("super_glue", "record"), rows, answers) == {"f1": 1.0, "exact_match": 1.0}


def test_perfect_answers_score_one_in_every_task():
    for tasks in BENCHMARKS.values():
        for task in tasks.values():
            rows = [
                {
                    "idx": idx(0, i, 0) if task.name == "multirc" else i,
                    "hypothesis": "h",
                    "label": i,
                    "answers": ["Ann"],
                }
                for i in range(2)
            ]
            right = ["Ann", "Ann"] if task.name == "record" else [0, 1]
            assert score(task, rows, right) == {name: pytest.approx(1.0) for name in task.metrics} | (
                {"gender_parity": 0.0} if task.name == "axg" else {}
            )
