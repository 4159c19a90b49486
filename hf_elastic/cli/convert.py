"""`hf-elastic convert`: a checkpoint becomes a supernet."""

from typing import Annotated

import typer

from .display import console
from .options import OutputDir, Overwrite, Subnets, check_output_dir, choose_sizes, refuse_file


def convert(
    source: Annotated[str, typer.Argument(help="Folder or Hub id of a checkpoint.", callback=refuse_file)],
    output_dir: OutputDir,
    task: Annotated[
        str | None,
        typer.Option(
            help="masked-lm, feature-extraction, multiple-choice, question-answering, sequence-classification or "
            "token-classification. (default: what it was saved for)"
        ),
    ] = None,
    num_labels: Annotated[int | None, typer.Option(help="Labels of a new head.")] = None,
    sparse_attention: Annotated[
        bool, typer.Option("--sparse-attention", help="Let layers learn which blocks of the input to leave out.")
    ] = False,
    subnet: Subnets = None,
    overwrite: Overwrite = False,
) -> None:
    """Convert a checkpoint (BERT, RoBERTa, ModernBERT, ...) into a supernet with the same outputs; name its sizes."""
    check_output_dir(output_dir, overwrite)
    from ..checkpoints import save_with_tokenizer
    from ..compression.convert import convert as convert_checkpoint
    from ..recipes import subnet_configs

    sizes = choose_sizes(subnet, None, source)
    settings = {} if num_labels is None else {"num_labels": num_labels}
    model = convert_checkpoint(source, task=task, sparse_attention=sparse_attention, **settings)
    model.config.subnets = subnet_configs(model.config, sizes)
    save_with_tokenizer(model, source, output_dir)
    console.print(f"The supernet with the sizes {', '.join(model.config.subnets)} lies in {output_dir}.")
