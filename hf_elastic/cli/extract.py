"""`hf-elastic extract`: one size becomes a checkpoint of its own."""

from typing import Annotated

import typer

from .display import console
from .options import OutputDir, Overwrite, Supernet, check_output_dir


def extract(
    supernet: Supernet,
    size: Annotated[str, typer.Argument(help="Name of the size, see `hf-elastic info`.")],
    output_dir: OutputDir,
    stock: Annotated[bool, typer.Option("--stock", help="In the source's own class, e.g. as a BertModel.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Cut one size out of a supernet, as an ordinary checkpoint with the tokenizer."""
    check_output_dir(output_dir, overwrite)
    from ..checkpoints import load_elastic, named_subnets, save_with_tokenizer
    from ..compression.extract import extract as extract_size
    from ..compression.stock import to_stock

    sizes = named_subnets(supernet)
    if sizes and size not in sizes:  # before the weights are loaded
        raise ValueError(f"Unknown size {size!r}: {supernet} has {', '.join(sizes)}.")
    member = extract_size(load_elastic(supernet), size)
    if stock:
        member = to_stock(member)
    save_with_tokenizer(member, supernet, output_dir)
    console.print(f"{size}, a {type(member).__name__}, lies in {output_dir}.")
