"""`hf-elastic ensemble`: several sizes, seeds or checkpoints answer together."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .display import console, show_table
from .options import OutputDir

if TYPE_CHECKING:
    from ..tasks.ensemble import Ensemble


def ensemble(
    task: Annotated[
        list[str],
        typer.Option("--task", help="Name of a task; repeat it. `all` are those that the first member's run has."),
    ],
    member: Annotated[
        list[str],
        typer.Option(
            "--member",
            metavar="RUN[:SIZE[:SEED]]",
            help="Folder that `hf-elastic glue` or `superglue` wrote, a size and a seed: what is left out stands for "
            "all. Repeat it.",
        ),
    ],
    output_dir: OutputDir,
    weight: Annotated[
        list[float] | None,
        typer.Option(
            help="How much each model of a --member counts, in their order; repeat it. Choose it on rows that are not "
            "reported. (default: all alike)"
        ),
    ] = None,
    submission: Annotated[
        Path | None, typer.Option(help="Folder for the zip with the files that the benchmark's server takes.")
    ] = None,
) -> None:
    """Average the probabilities that sizes, seeds or checkpoints gave, and score them. No model is run again."""
    from ..tasks.ensemble import find_members, join, named_in, submit_ensembles

    weights = weight or [1.0] * len(member)
    if len(weights) != len(member):
        raise typer.BadParameter(f"{len(weights)} times --weight for {len(member)} times --member: give one for each.")
    ensembles = []
    for name in named_in(member[0], task):
        chosen = [of for spec, share in zip(member, weights, strict=True) for of in find_members(name, spec, share)]
        ensembles.append(join(chosen))
    for joined in ensembles:  # once none of them has failed
        show_table(_rows(joined), f"{joined.task.title} ({joined.task.benchmark} {joined.task.name})")
        console.print(f"The predictions lie in {joined.save(output_dir)}.", markup=False)
    if submission is not None:
        console.print(f"For the server: {submit_ensembles(ensembles, submission)}", markup=False)


def _rows(joined: "Ensemble") -> list[dict[str, str]]:
    """One row for each member, and the ensemble's last, which costs what all members cost."""
    from ..hub.table import UNKNOWN, with_unit

    members = joined.members
    are_weighted = len({of.weight for of in members}) > 1
    total = sum(of.weight for of in members)
    entries = [(of.name, of.weight / total, of.result.costs[of.size].flops, of.scores) for of in members]
    flops = sum(flops for _, _, flops, _ in entries)
    return [
        {
            "model": name,
            **({"weight": f"{share:.2f}"} if are_weighted else {}),
            "FLOPs": with_unit(flops),
            **{
                f"{split} {metric}": f"{scores[split][metric]:.4f}" if split in scores else UNKNOWN
                for split, of_split in joined.scores.items()
                for metric in of_split
            },
        }
        for name, share, flops, scores in [*entries, ("ensemble", 1.0, flops, joined.scores)]
    ]
