"""How the rows of a task become what a model reads, and how its scores become the task's answers.

What is distinctive: a format is a frozen value, so that the table of tasks is data; and all formats go one way, from a
row to one or several examples and from the examples' logits to one answer per row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

Row = Mapping[str, Any]


class Span(NamedTuple):
    """A part of an example that has to stay: the number of its text, the first character, and past the last one."""

    text: int
    start: int
    end: int


@dataclass(frozen=True)
class Example:
    """What one pass of a model reads.

    Args:
        texts: One text, or the two of a pair.
        label: Id of the right label, or the number of a regression; None without labels.
        spans: Parts of the texts that truncation has to keep.
    """

    texts: tuple[str, ...]
    label: int | float | None = None
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class InputFormat:
    """The way from rows to examples and from logits to answers. Each subclass is one way."""

    # The task of `convert` that makes the head.
    head: ClassVar[str] = "sequence-classification"
    # What the column `idx` is made of, where it is no number.
    idx_parts: ClassVar[tuple[str, ...]] = ()
    # Characters that are put around spans, which the tokenizer must not drop.
    markers: ClassVar[tuple[str, ...]] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read, besides the label's."""
        raise NotImplementedError

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Those of them that hold text."""
        return self.columns

    def group(self, row: Row) -> Any:
        """Gives what rows have in common that must not be torn between training and evaluation; None if nothing."""
        return None

    def examples(self, row: Row) -> list[Example]:
        """Gives the examples of a row: one, unless the row has several candidates."""
        raise NotImplementedError

    def answer(self, row: Row, logits: np.ndarray) -> Any:
        """Gives what is answered.

        Args:
            row: The row.
            logits: Of its examples.

        Shape:
            logits: `[examples, num_labels]`; `[choices]` of multiple choice.
        """
        return int(logits[0].argmax()) if logits.shape[-1] > 1 else float(logits[0, 0])


@dataclass(frozen=True)
class Texts(InputFormat):
    """One text, or a pair, as it is.

    Args:
        names: The columns.
    """

    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    def examples(self, row: Row) -> list[Example]:
        return [Example(tuple(row[name] for name in self.names), row.get("label"))]


@dataclass(frozen=True)
class Answers(InputFormat):
    """A passage, and a question with one of its possible answers: right or wrong (MultiRC)."""

    idx_parts: ClassVar[tuple[str, ...]] = ("paragraph", "question", "answer")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.text_columns, "idx")

    @property
    def text_columns(self) -> tuple[str, ...]:
        return ("paragraph", "question", "answer")

    def group(self, row: Row) -> Any:
        return row["paragraph"]

    def examples(self, row: Row) -> list[Example]:
        return [Example((row["paragraph"], f"{row['question']} {row['answer']}"), row.get("label"))]


@dataclass(frozen=True)
class Choices(InputFormat):
    """A premise, and two sentences of which one is its cause or its effect (COPA)."""

    head: ClassVar[str] = "multiple-choice"
    questions: ClassVar[dict[str, str]] = {
        "cause": "What was the cause of this?",
        "effect": "What happened as a result?",
    }

    @property
    def columns(self) -> tuple[str, ...]:
        return ("premise", "choice1", "choice2", "question")

    def examples(self, row: Row) -> list[Example]:
        if row["question"] not in self.questions:
            raise ValueError(f"question={row['question']!r} is none of {', '.join(map(repr, self.questions))}.")
        premise = f"{row['premise']} {self.questions[row['question']]}"
        return [Example((premise, row[choice]), row.get("label")) for choice in ("choice1", "choice2")]

    def answer(self, row: Row, logits: np.ndarray) -> int:
        return int(logits.argmax())


@dataclass(frozen=True)
class Entities(InputFormat):
    """A passage, and a sentence with each entity of the passage in its gap; the likeliest one fills it (ReCoRD).

    A text given twice as an entity counts once. Training sees each filled sentence as right or wrong.
    """

    idx_parts: ClassVar[tuple[str, ...]] = ("passage", "query")
    placeholder: ClassVar[str] = "@placeholder"

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.text_columns, "entities", "idx")

    @property
    def text_columns(self) -> tuple[str, ...]:
        return ("passage", "query")

    def group(self, row: Row) -> Any:
        return row["passage"]

    def candidates(self, row: Row) -> list[str]:
        """The different entities, in the order of the row.

        Raises:
            ValueError: If there is none.
        """
        entities = list(dict.fromkeys(row["entities"]))
        if not entities:
            raise ValueError(f"The row with idx={row['idx']} has no entities to choose from.")
        return entities

    def examples(self, row: Row) -> list[Example]:
        passage = row["passage"].replace("\n@highlight\n", " ")
        answers = row.get("answers") or None  # test splits have none
        return [
            Example(
                (passage, row["query"].replace(self.placeholder, entity)),
                None if answers is None else int(entity in answers),
            )
            for entity in self.candidates(row)
        ]

    def answer(self, row: Row, logits: np.ndarray) -> str:
        return self.candidates(row)[int((logits[:, 1] - logits[:, 0]).argmax())]


def answers_of(format_: InputFormat, rows: Sequence[Row], counts: Sequence[int], logits: np.ndarray) -> list[Any]:
    """Gives the answers to the rows of a split.

    Args:
        format_: The task's format.
        rows: The rows, in the order of the logits.
        counts: Number of examples of each row; choices of one row are one example.
        logits: Of all examples, one row's after the other's.

    Shape:
        logits: `[examples, num_labels]`.

    Raises:
        ValueError: If there are not as many logits as examples.
    """
    if sum(counts) != len(logits):
        raise ValueError(
            f"{len(logits)} rows of logits for {sum(counts)} examples: predict the whole split, in order."
        )
    parts = np.split(np.asarray(logits), np.cumsum(counts)[:-1])
    return [format_.answer(row, part) for row, part in zip(rows, parts, strict=True)]
