"""Columns of the data that are kept although the model does not read them: those of teachers and of their caches."""

from collections.abc import Iterable, Sequence

from .teachers import EXAMPLE_ID, Teacher, input_prefixes


class KeptColumns(list[str]):
    """The names of the columns that a trainer keeps, and with them all that begin as a teacher's do.

    [`~transformers.Trainer`] looks up in such a list the names in each row, where a dataset does not tell its columns.

    Args:
        names (`Iterable[str]`):
            What the model reads.
        teachers (`Sequence[Teacher]`):
            The teachers, whose columns are told by what they begin with.
        has_cache (`bool`, defaults to `False`):
            Whether the teachers' predictions are cached by the ids of the examples.

    Example:
        >>> "electra_input_ids" in KeptColumns(["input_ids"], [Teacher(electra, inputs="electra_")])
        True
    """

    def __init__(self, names: Iterable[str], teachers: Sequence[Teacher], has_cache: bool = False) -> None:
        super().__init__([*names, EXAMPLE_ID] if has_cache and teachers else names)
        self.prefixes = input_prefixes(teachers)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).startswith(self.prefixes)

    def add_from(self, columns: Iterable[str]) -> None:
        """Adds the names in a dataset of columns that begin as a teacher's do."""
        known = set(self)
        self.extend(name for name in columns if name in self and name not in known)
