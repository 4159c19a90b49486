"""Text for teachers that have another tokenizer than the student: its columns in a dataset, and its padding."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transformers import DataCollatorWithPadding

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase


def encode_for_teacher(
    dataset: "datasets.Dataset",
    tokenizer: "PreTrainedTokenizerBase",
    text_columns: str | Sequence[str],
    prefix: str,
    max_length: int | None = None,
) -> "datasets.Dataset":
    """Adds the columns that a teacher with a tokenizer of its own reads.

    All other columns stay. The texts are needed, so call it before they are removed; each row holds one text or pair,
    as for sequence classification.

    Args:
        dataset: Rows with the texts.
        tokenizer: The teacher's tokenizer.
        text_columns: Name of one column, or of the two of a pair.
        prefix: What the names of the new columns start with, as in [`Teacher`].
        max_length: Tokens to which a text or pair is cut. Default: the tokenizer's limit.

    Returns:
        The dataset with the tokenizer's columns, e.g. `electra_input_ids`.

    Raises:
        ValueError: If a column of texts is missing, there are not one or two, or a new column exists already.

    Example:
        >>> train = encode_for_teacher(train, electra_tokenizer, ("premise", "hypothesis"), "electra_")
    """
    texts = (text_columns,) if isinstance(text_columns, str) else tuple(text_columns)
    there = f"The columns are: {', '.join(dataset.column_names)}."
    if not 1 <= len(texts) <= 2:
        raise ValueError(f"text_columns={list(texts)}: name one column, or the two of a pair. {there}")
    for name in texts:
        if name not in dataset.column_names:
            raise ValueError(f"There is no column {name!r}. {there} Encode for teachers before texts are removed.")
    taken = [name for name in dataset.column_names if name.startswith(prefix)]
    if taken:
        raise ValueError(f"Column {taken[0]!r} starts with prefix={prefix!r} already. Choose another prefix.")

    def encode(rows: dict[str, list[Any]]) -> dict[str, Any]:
        encoded = tokenizer(*(rows[name] for name in texts), truncation=True, max_length=max_length)
        return {f"{prefix}{name}": values for name, values in encoded.items()}

    return dataset.map(encode, batched=True, desc=f"Tokenising for {prefix}")


@dataclass
class TeacherInputsCollator:
    """Pads the student's columns with one collator, and each teacher's own columns with its own tokenizer.

    [`UnpaddingCollator`] may be around it or inside it: its mark is for the student.

    Args:
        collator (`Callable`):
            Makes a batch of the student's columns, e.g. [`~transformers.DataCollatorWithPadding`].
        tokenizers (`Mapping[str, PreTrainedTokenizerBase]`):
            Tokenizer of each teacher with columns of its own, by what their names start with. Columns that the
            features do not have are left out, as in data for evaluation.

    Example:
        >>> collator = TeacherInputsCollator(DataCollatorWithPadding(tokenizer), {"electra_": electra_tokenizer})
    """

    collator: Callable[[list[Any]], dict[str, Any]]
    tokenizers: Mapping[str, "PreTrainedTokenizerBase"]
    _paddings: dict[str, DataCollatorWithPadding] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._paddings = {prefix: DataCollatorWithPadding(tokenizer) for prefix, tokenizer in self.tokenizers.items()}

    def __call__(self, features: list[Mapping[str, Any]]) -> dict[str, Any]:
        prefixes = tuple(self.tokenizers)
        batch = dict(
            self.collator([{name: row[name] for name in row if not name.startswith(prefixes)} for row in features])
        )
        for prefix, pad in self._paddings.items():
            own = [
                {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
                for row in features
            ]
            if any(own):
                batch |= {f"{prefix}{name}": value for name, value in pad(own).items()}
        return batch
