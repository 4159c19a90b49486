"""`hf-elastic info`: what a supernet, a member or a family is and costs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .display import conditions, console, show_table
from .options import refuse_file

if TYPE_CHECKING:
    from ..modeling.modeling_elastic import ElasticPreTrainedModel
    from ..modeling.subnet_elastic import SubnetConfig


def info(
    path: Annotated[
        str,
        typer.Argument(
            help="A supernet or member (folder or Hub id), or the folder of a family.", callback=refuse_file
        ),
    ],
    sequence_length: Annotated[
        int | None, typer.Option(help="Tokens for FLOPs and latency. (default: 128)", show_default=False)
    ] = None,
    latency: Annotated[bool, typer.Option("--latency", help="Also measure a forward pass of one text.")] = False,
) -> None:
    """Show the sizes of a supernet, member or family: layers, parameters, FLOPs, and what they score."""
    from ..hub.manifest import MANIFEST_NAME

    if not (Path(path) / MANIFEST_NAME).is_file():
        _show_model(path, sequence_length or 128, latency)
    elif latency or sequence_length:
        raise typer.BadParameter(
            f"{path} is a family, of which what was measured at its export is shown: give one of its folders to "
            "measure with --latency or --sequence-length."
        )
    else:
        _show_family(path)


def _show_family(path: str) -> None:
    from ..hub.family import load_family

    family = load_family(path)
    manifest = family.manifest
    console.print(f"{manifest.name}: a family of {manifest.architecture} from {manifest.source}, {manifest.created}.")
    show_table(family.table(), conditions(family))
    console.print("Every file is there and unchanged.")


def _show_model(path: str, sequence_length: int, latency: bool) -> None:
    from ..checkpoints import load_elastic
    from ..compression.cost import count_parameters
    from ..training.coverage import trained_subnets

    model = load_elastic(path)
    config = model.config
    source = f"a {config.source_model_type} checkpoint" if config.source_model_type else "scratch"
    console.print(
        f"{type(model).__name__}, made from {source}: hidden size {config.hidden_size}, head size "
        f"{config.head_dim}, {config.vocab_size} words, {config.max_position_embeddings} positions."
    )
    sizes = trained_subnets(model) if config.subnets else {"(whole)": None}
    console.print(f"FLOPs{' and milliseconds' if latency else ''} are those of one text of {sequence_length} tokens.")
    largest_first = sorted(sizes, key=lambda name: -count_parameters(model, sizes[name]).total)
    show_table(_describe(model, name, sizes[name], sequence_length, latency) for name in largest_first)


def _describe(
    model: "ElasticPreTrainedModel", name: str, subnet: "SubnetConfig | None", sequence_length: int, latency: bool
) -> dict[str, str]:
    from ..compression.cost import count_flops, count_parameters, measure_latency
    from ..compression.sizes import span
    from ..compression.sparsity import head_sparsities
    from ..hub.table import with_unit

    layers = model.resolve_subnet(subnet).layer_sizes(model.config)
    parameters = count_parameters(model, subnet)
    row = {
        "size": name,
        "layers": str(len(layers)),
        "hidden": str(layers[0].hidden_size),
        "heads": span(layer.num_attention_heads for layer in layers),
        "ffn": span(layer.intermediate_size for layer in layers),
        "parameters": with_unit(parameters.total),
        "encoder": with_unit(parameters.encoder),
        "FLOPs": with_unit(count_flops(model, subnet, sequence_length)),
    }
    if any(layer.num_experts > 1 for layer in model.config.layer_sizes()):
        active, kept = (span(getattr(layer, f"num_experts{end}") for layer in layers) for end in ("_per_tok", ""))
        row["experts"] = f"{active} of {kept}"
    sparsities = [sparsity for heads in head_sparsities(model, subnet).values() for sparsity in heads]
    if sparsities:
        row["sparsity"] = span(f"{sparsity:.2f}" for sparsity in sparsities)
    if latency:
        row["ms"] = f"{measure_latency(model, subnet, sequence_length).milliseconds:.1f}"
    return row
