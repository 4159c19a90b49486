"""What has to hold of rows before anything is made of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datasets
    import pyarrow


def check_rows(dataset: "datasets.Dataset", split: str, columns: Sequence[str]) -> "pyarrow.Table":
    """Gives columns of a split, none of them missing and no cell null.

    Args:
        dataset: The split.
        split: Its name, for errors.
        columns: What is needed.

    Raises:
        ValueError: If a column is missing, there is no row, or a cell is null. It names the column and the row.
    """
    listing = f"The columns are: {', '.join(dataset.column_names)}."
    for name in columns:
        if name not in dataset.column_names:
            raise ValueError(f"The {split} data has no column {name!r}. {listing}")
    if len(dataset) == 0:
        raise ValueError(f"The {split} data is empty: there is no row. {listing}")
    table = dataset.select_columns(list(columns)).with_format("arrow")[:]
    for name in columns:
        nulls = table[name].is_null(nan_is_null=True).to_numpy().nonzero()[0]
        if len(nulls):
            raise ValueError(
                f"Column {name!r} of the {split} data is null in {len(nulls)} of {len(table)} rows, the first is row "
                f"{nulls[0]} (counted from 0): fill or remove them."
            )
    return table
