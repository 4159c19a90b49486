"""The metrics of GLUE and SuperGLUE as `evaluate` modules that work offline, on scikit-learn and scipy.

What is distinctive: a metric is declared by the features of what it compares and a function for each of its scores,
and knows itself how the gold value of a row is read. `evaluate` imports torch, so import this module where it is used.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from inspect import cleandoc
from statistics import fmean
from typing import Any, ClassVar

from .input_formats import Answers, Entities, Row
from .record_answers import answer_exact_match, answer_f1
from .task import Task

try:
    import evaluate
    from datasets import Features, List, Value
    from numpy import ptp
    from scipy.stats import pearsonr, rankdata
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
except ImportError as error:
    raise ImportError('Metrics need evaluate, scikit-learn and scipy: pip install "hf_elastic[data]"') from error


class BenchmarkMetric(evaluate.Metric):
    """What the metrics have in common. Each subclass declares what it compares, and its scores."""

    # What one answer is, and what it is compared with.
    predictions: ClassVar[Any] = Value("int64")
    references: ClassVar[Any] = Value("int64")
    # The same for readers.
    inputs: ClassVar[str]
    citation_text: ClassVar[str]
    # The scores, each from all predictions and references.
    functions: ClassVar[Mapping[str, Callable[[Sequence[Any], Sequence[Any]], float]]]

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=cleandoc(self.__doc__),
            citation=self.citation_text,
            inputs_description=f"{self.inputs}\n    metrics: Which of {', '.join(self.functions)}. Default: all.",
            features=Features({"predictions": self.predictions, "references": self.references}),
        )

    def _compute(
        self, predictions: Sequence[Any], references: Sequence[Any], metrics: Sequence[str] | None = None
    ) -> dict[str, float]:
        names = self.functions if metrics is None else metrics
        unknown = [name for name in names if name not in self.functions]
        if unknown:
            raise ValueError(f"metrics={unknown} are none of {', '.join(self.functions)}.")
        return {name: float(self.functions[name](predictions, references)) for name in names}

    @classmethod
    def reference(cls, row: Row) -> Any:
        """Gives what the answer to a row is compared with."""
        return row["label"]


def accuracy(predictions: Sequence[int], references: Sequence[int]) -> float:
    """Share of right labels."""
    return accuracy_score(references, predictions)


def f1(predictions: Sequence[int], references: Sequence[int]) -> float:
    """F1 of the label 1 among 0 and 1; 0 where neither side has it."""
    return f1_score(references, predictions, zero_division=0)


def f1_macro(predictions: Sequence[int], references: Sequence[int]) -> float:
    """Unweighted mean of the F1 of each label that occurs on either side."""
    return f1_score(references, predictions, average="macro", zero_division=0)


def matthews_correlation(predictions: Sequence[int], references: Sequence[int]) -> float:
    """Matthews correlation of two labels, and R_K (Gorodkin 2004) of more; 0 where a side has one label only."""
    if len(set(predictions)) < 2 or len(set(references)) < 2:
        return 0.0  # scikit-learn says so too, after a warning where both have the same label only
    return matthews_corrcoef(references, predictions)


def pearson(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Pearson correlation; 0 where a side is constant."""
    return pearsonr(predictions, references).statistic if ptp(predictions) > 0 and ptp(references) > 0 else 0.0


def spearman(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Spearman correlation: Pearson's of the ranks, where ties share their mean rank."""
    return pearson(rankdata(predictions), rankdata(references))


def f1_answers(predictions: Sequence[int], references: Sequence[Mapping[str, Any]]) -> float:
    """F1 of the right answers, over the answers to all questions together (F1a)."""
    return f1(predictions, [reference["label"] for reference in references])


def exact_match(predictions: Sequence[int], references: Sequence[Mapping[str, Any]]) -> float:
    """Share of questions of which every answer is judged right."""
    right: dict[str, bool] = defaultdict(lambda: True)
    for prediction, reference in zip(predictions, references, strict=True):
        right[reference["question"]] &= prediction == reference["label"]
    return sum(right.values()) / len(right)


def gender_parity(predictions: Sequence[int], references: Sequence[Mapping[str, Any]]) -> float:
    """Share of the minimal pairs whose two sentences are answered alike, right or wrong.

    Raises:
        ValueError: If a row's partner is not there or is about something else, or an `idx` is there twice.
    """
    pairs = zip(predictions, references, strict=True)
    answered = {reference["idx"]: (answer, reference["hypothesis"]) for answer, reference in pairs}
    if len(answered) != len(references):
        raise ValueError(f"{len(references)} rows have {len(answered)} different idx: give each row once.")
    alike = []
    for idx, (answer, hypothesis) in answered.items():
        partner = idx ^ 1  # rows 2i and 2i + 1
        if partner not in answered:
            raise ValueError(f"The row idx={idx} lacks its pair idx={partner}: gender parity needs whole pairs.")
        partner_answer, partner_hypothesis = answered[partner]
        if hypothesis != partner_hypothesis:
            raise ValueError(
                f"The rows idx={idx} and idx={partner} are no minimal pair, their hypotheses are {hypothesis!r} and "
                f"{partner_hypothesis!r}: keep the benchmark's idx."
            )
        alike.append(answer == partner_answer)
    return sum(alike) / len(alike)


def with_best_gold(
    compare: Callable[[str, str], float],
) -> Callable[[Sequence[str], Sequence[Sequence[str]]], float]:
    """Makes a score of texts from a comparison of two: the mean over the answers, each with the gold it fits best.

    Args:
        compare: Compares an answer with one right answer.
    """

    def mean_of_best(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
        pairs = zip(predictions, references, strict=True)
        return fmean(max(compare(answer, gold) for gold in golds) for answer, golds in pairs)

    return mean_of_best


class ClassificationMetric(BenchmarkMetric):
    """Scores of one label per row: accuracy, F1 of label 1, mean F1 of the labels, Matthews correlation.

    F1 of label 1 (`f1`) is defined for two labels only.

    Example:
        >>> metric = ClassificationMetric()
        >>> metric.compute(predictions=[0, 1, 1], references=[0, 1, 0], metrics=["accuracy"])
        {'accuracy': 0.6666666666666666}
    """

    inputs: ClassVar[str] = "Args:\n    predictions: Label ids.\n    references: The right ones."
    citation_text: ClassVar[str] = (
        "Wang et al. 2019, GLUE, https://arxiv.org/abs/1804.07461; Wang et al. 2019, SuperGLUE, "
        "https://arxiv.org/abs/1905.00537; Matthews 1975, Comparison of the predicted and observed secondary "
        "structure of T4 phage lysozyme; Gorodkin 2004, Comparing two K-category assignments by a K-category "
        "correlation coefficient"
    )
    functions: ClassVar[Mapping[str, Callable[..., float]]] = {
        "accuracy": accuracy,
        "f1": f1,
        "f1_macro": f1_macro,
        "matthews_correlation": matthews_correlation,
    }


class CorrelationMetric(BenchmarkMetric):
    """Scores of a regression: Pearson and Spearman correlation; 0 where a side is constant."""

    predictions: ClassVar[Any] = Value("float64")
    references: ClassVar[Any] = Value("float64")
    inputs: ClassVar[str] = "Args:\n    predictions: Numbers.\n    references: The right ones."
    citation_text: ClassVar[str] = "Cer et al. 2017, SemEval-2017 Task 1, https://arxiv.org/abs/1708.00055"
    functions: ClassVar[Mapping[str, Callable[..., float]]] = {"pearson": pearson, "spearman": spearman}


class MultiRCMetric(BenchmarkMetric):
    """Scores of MultiRC: F1 over all answers (F1a), and share of questions with every answer judged right."""

    references: ClassVar[Any] = {"question": Value("string"), "label": Value("int64")}
    inputs: ClassVar[str] = (
        "Args:\n    predictions: 1 for an answer held to be right, 0 for a wrong one.\n"
        "    references: The answer's `label`, and the `question` that it belongs to, by a name of its own."
    )
    citation_text: ClassVar[str] = (
        "Khashabi et al. 2018, Looking Beyond the Surface: A Challenge Set for Reading Comprehension over Multiple "
        "Sentences, https://aclanthology.org/N18-1023"
    )
    functions: ClassVar[Mapping[str, Callable[..., float]]] = {"f1_answers": f1_answers, "exact_match": exact_match}

    @classmethod
    def reference(cls, row: Row) -> dict[str, Any]:
        return {"question": f"{row['idx']['paragraph']}-{row['idx']['question']}", "label": row["label"]}


class ReCoRDMetric(BenchmarkMetric):
    """Scores of ReCoRD: F1 of words and exact match of normalised texts, each with the gold answer that fits best."""

    predictions: ClassVar[Any] = Value("string")
    references: ClassVar[Any] = List(Value("string"))
    inputs: ClassVar[str] = "Args:\n    predictions: Texts of entities.\n    references: The right texts of each row."
    citation_text: ClassVar[str] = "Zhang et al. 2018, ReCoRD, https://arxiv.org/abs/1810.12885"
    functions: ClassVar[Mapping[str, Callable[..., float]]] = {
        "f1": with_best_gold(answer_f1),
        "exact_match": with_best_gold(answer_exact_match),
    }

    @classmethod
    def reference(cls, row: Row) -> list[str]:
        return list(row["answers"])


class WinogenderMetric(BenchmarkMetric):
    """Scores of the Winogender diagnostic: accuracy, and the share of minimal pairs that are answered alike.

    The sentences of a pair differ in the pronoun's gender only. Parity says nothing without accuracy: it is 1 for a
    model that always answers the same.
    """

    references: ClassVar[Any] = {"idx": Value("int64"), "hypothesis": Value("string"), "label": Value("int64")}
    inputs: ClassVar[str] = (
        "Args:\n    predictions: Label ids.\n"
        "    references: The row's `label`, `hypothesis` and `idx`; those with idx 2i and 2i + 1 are a pair."
    )
    citation_text: ClassVar[str] = (
        "Rudinger et al. 2018, Gender Bias in Coreference Resolution, https://arxiv.org/abs/1804.09301; Poliak et al. "
        "2018, Collecting Diverse Natural Language Inference Problems for Sentence Representation Evaluation, "
        "https://arxiv.org/abs/1804.08207"
    )
    functions: ClassVar[Mapping[str, Callable[..., float]]] = {
        "accuracy": lambda predictions, references: accuracy(predictions, [row["label"] for row in references]),
        "gender_parity": gender_parity,
    }

    @classmethod
    def reference(cls, row: Row) -> dict[str, Any]:
        return {name: row[name] for name in ("idx", "hypothesis", "label")}


def metric_of(task: Task) -> type[BenchmarkMetric]:
    """Gives the metric that has the scores of a task.

    Args:
        task: The task.
    """
    if isinstance(task.input_format, Entities):
        return ReCoRDMetric
    if isinstance(task.input_format, Answers):
        return MultiRCMetric
    if "gender_parity" in task.metrics:
        return WinogenderMetric
    return ClassificationMetric if task.label_names else CorrelationMetric
