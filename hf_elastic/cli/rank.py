"""`hf-elastic rank`: the units of a supernet are put in order of importance."""

from typing import Annotated

import typer

from .display import console
from .options import (
    ConfigName,
    Data,
    LabelColumn,
    OutputDir,
    Overwrite,
    Regression,
    Split,
    Supernet,
    TextColumns,
    check_output_dir,
    read_data,
)


def rank(
    supernet: Supernet,
    data: Data,
    output_dir: OutputDir,
    config_name: ConfigName = None,
    split: Split = None,
    text_column: TextColumns = None,
    label_column: LabelColumn = None,
    regression: Regression = False,
    max_length: Annotated[int, typer.Option(help="Tokens to which a text is cut.")] = 128,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows per step.")] = 16,
    rank_examples: Annotated[int, typer.Option(min=1, help="Training rows to rank the units by.")] = 256,
    seed: Annotated[int, typer.Option(help="Seed of the choice of rows.")] = 42,
    overwrite: Overwrite = False,
) -> None:
    """Order heads and neurons of a fine-tuned supernet by importance, on training rows. Its outputs stay the same."""
    check_output_dir(output_dir, overwrite)
    from torch.utils.data import DataLoader
    from transformers import DataCollatorWithPadding

    from ..checkpoints import load_elastic, load_tokenizer, save_with_tokenizer
    from ..compression.rank import rank as rank_units
    from ..tasks.text_classification import encode

    labelled = read_data(
        data,
        supernet,
        regression,
        split=split,
        config_name=config_name,
        text_columns=text_column,
        label_column=label_column,
    ).limit(rank_examples, seed)
    model = load_elastic(supernet)
    tokenizer = load_tokenizer(supernet)
    rows = encode(labelled, tokenizer, max_length)["train"]
    importance = rank_units(model, DataLoader(rows, batch_size, collate_fn=DataCollatorWithPadding(tokenizer)))
    save_with_tokenizer(model, supernet, output_dir)
    console.print(f"The supernet, ordered by {importance.num_examples} training rows, lies in {output_dir}.")
