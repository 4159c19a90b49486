"""Writing a family: every size as a checkpoint of its own, with cards, a picture and the manifest."""

import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from .. import __version__
from ..compression.cost import count_flops
from ..compression.extract import extract
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import SubnetConfig
from .cards import PICTURE_NAME, render_card
from .details import TrainingDetails, is_hub_id
from .family import Family, load_family
from .figures import draw_pareto
from .formats import CHECKPOINT_FORMAT, FORMATS
from .heads import HEADS
from .integrity import foreign_files, record_files
from .manifest import FORMAT_VERSION, SUPERNET_NAME, FamilyError, Layer, Manifest, Member, read_manifest
from .measuring import measured_latency, measured_parameters
from .request import ExportRequest, check_extra
from .staging import check_place, staged

logger = logging.get_logger(__name__)

NAMED_FILES = 5  # as many as an error names


def export_family(
    model: ElasticPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    out: str | Path,
    subnets: Sequence[str] | Mapping[str, SubnetConfig] | None = None,
    formats: Sequence[str] = ("safetensors",),
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    details: TrainingDetails | Mapping[str, Any] | None = None,
    sequence_length: int = 128,
    primary_metric: str | None = None,
    greater_is_better: bool | None = None,
    overwrite: bool = True,
) -> Family:
    """Writes the sizes of a supernet as a family of ordinary checkpoints.

    `out` gets `family.json`, and one folder per size and one for the supernet, each with weights, configuration,
    tokenizer, code, card and picture. All of it appears at once: until then, and whatever goes wrong, a former family
    stays. It also stays, with an error, if it holds anything that this function did not write: an added file (hidden
    ones and `.git` included) or a changed one, such as a card edited by hand. Only caches (`.cache`, `.DS_Store`,
    `__pycache__`) are deleted with it.

    Args:
        model (`ElasticPreTrainedModel`):
            The supernet. Latencies are measured on its device, in its data type.
        tokenizer (`PreTrainedTokenizerBase`):
            Its tokenizer.
        out (`str` or `Path`):
            The folder to write: a new one, an empty one, or that of a former family. Not the current folder.
        subnets (`Sequence[str]` or `Mapping[str, SubnetConfig]`, *optional*):
            Names in `model.config.subnets`, or sizes by name; these are also named in the exported supernet. All named
            ones by default.
        formats (`Sequence[str]`, defaults to `("safetensors",)`):
            Formats to write each size in. A checkpoint in `safetensors` is always among them.
        metrics (`Mapping[str, Mapping[str, float]]`, *optional*):
            Values by size and metric, e.g. `{"small": {"accuracy": 0.95}}`. Without them there is no picture.
        details (`TrainingDetails` or `Mapping[str, Any]`, *optional*):
            What the cards say about purpose, data and training.
        sequence_length (`int`, defaults to 128):
            Tokens per sequence for FLOPs and latency.
        primary_metric (`str`, *optional*):
            The metric that sizes are compared by. The first one given by default.
        greater_is_better (`bool`, *optional*):
            Whether a larger value of it is better. By default yes, unless its name ends in `loss`, as in `Trainer`.
        overwrite (`bool`, defaults to `True`):
            Whether a former family at `out` may be replaced.

    Returns:
        [`Family`]: The family on disk.

    Raises:
        ValueError, TypeError: If an argument is unusable: an unknown or unfit size, format, metric or detail.
        ValueError, NotADirectoryError, OSError: If `out` is the current folder or one around it, a file or a mount
            point, or has too long a name.
        FileExistsError: If `out` holds something else than an unchanged family, or a family while `overwrite` is
            `False`.
        BlockingIOError: If another process is writing to `out`.
        ImportError: If the extra `export` is not installed. All of these come before any work.

    Example:
        >>> family = export_family(model, tokenizer, "out", metrics={"small": {"accuracy": 0.95}})
        >>> family.load("small")
    """
    request = ExportRequest.checked(
        model, tokenizer, subnets, formats, metrics, details, sequence_length, primary_metric, greater_is_better
    )
    out = Path(out).resolve()  # where it will be found whatever the current folder is then
    with staged(out, lambda former: _check_replaceable(former, overwrite)) as folder:
        supernet, members = _write_models(request, folder)
        manifest = _describe(request, request.details.name or out.name, supernet, members)
        _write_cards(manifest, folder)
        _with_files(manifest, folder).write(folder)
    logger.info(f"Exported {len(manifest.members)} sizes to {out}.")
    return load_family(out, verify=False)


def check_destination(out: str | Path, overwrite: bool = True) -> None:
    """Says before a long training whether [`export_family`] could write to a folder after it.

    Args:
        out (`str` or `Path`):
            The folder.
        overwrite (`bool`, defaults to `True`):
            Whether a former family there may be replaced.

    Raises:
        FileExistsError: If it holds something else than an unchanged family, or a family while `overwrite` is
            `False`.
        NotADirectoryError, ValueError, OSError: As [`check_place`] says.
        ImportError: If the extra `export` is not installed.
    """
    out = check_place(Path(out))
    if out.is_dir() and any(out.iterdir()):
        _check_replaceable(out, overwrite)
    check_extra("jinja2", "matplotlib")


def _check_replaceable(former: Path, overwrite: bool) -> None:
    try:
        manifest = read_manifest(former)
    except FamilyError as error:
        raise FileExistsError(
            f"{former} is not empty and holds no family that could be replaced: give another folder, or remove it "
            f"first. ({error})"
        ) from None
    if not overwrite:
        raise FileExistsError(
            f"{former} holds a family: give another folder, or overwrite=True (--overwrite) to replace it."
        )
    foreign = foreign_files(former, manifest)
    if foreign:
        more = f" and {len(foreign) - NAMED_FILES} more" if len(foreign) > NAMED_FILES else ""
        raise FileExistsError(
            f"{former} holds {', '.join(foreign[:NAMED_FILES])}{more}, added or changed since its export, which would "
            "be lost: move them away, or give another folder."
        )


def _write_models(request: ExportRequest, folder: Path) -> tuple[Member, list[Member]]:
    """Writes the supernet and the sizes; gives what the manifest says of each, the largest size first."""
    sizes = {SUPERNET_NAME: SubnetConfig(), **request.subnets}
    with _named_subnets(request.model, request.subnets):
        supernet, *members = [
            _write_member(request, name, subnet, folder)
            for name, subnet in logging.tqdm(sizes.items(), desc="Exporting", unit="size")
        ]
    members.sort(key=lambda member: -member.parameters.total)
    return supernet, members


def _write_member(request: ExportRequest, name: str, subnet: SubnetConfig, folder: Path) -> Member:
    if name == SUPERNET_NAME:
        model, formats = request.model, [CHECKPOINT_FORMAT]
    else:
        model, formats = extract(request.model, subnet), request.formats
    weights = {format: FORMATS[format](model, request.tokenizer, folder / name) for format in formats}
    return Member(
        name=name,
        subnet=subnet,
        layers=[Layer(*size) for size in subnet.layer_sizes(request.model.config)],
        parameters=measured_parameters(model),
        size_on_disk={format: sum(path.stat().st_size for path in paths) for format, paths in weights.items()},
        flops=count_flops(model, sequence_length=request.sequence_length),
        latency=measured_latency(model, request.sequence_length),
        metrics=request.metrics.get(name, {}),
    )


@contextmanager
def _named_subnets(model: ElasticPreTrainedModel, subnets: dict[str, SubnetConfig]) -> Iterator[None]:
    """Names the exported sizes in the supernet while it is saved, and leaves the caller's model as it was."""
    former = model.config.subnets
    model.config.subnets = {**former, **subnets}
    try:
        yield
    finally:
        model.config.subnets = former


def _describe(request: ExportRequest, title: str, supernet: Member, members: list[Member]) -> Manifest:
    config, details = request.model.config, request.details
    source = config.source_name_or_path or config.name_or_path
    # A name without an organization may as well be a folder's.
    if details.base_model is None and "/" in source and is_hub_id(source) and not Path(source).exists():
        details = replace(details, base_model=source)
    head = HEADS[type(request.model).__name__]
    return Manifest(
        format_version=FORMAT_VERSION,
        name=title,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        # Of a folder only the name: where it lay on this machine is nobody else's business.
        source=details.base_model or Path(source).name or None,
        source_model_type=config.source_model_type,
        architecture=type(request.model).__name__,
        task=head.task,
        labels=[config.id2label[i] for i in range(config.num_labels)] if head.has_labels(config) else [],
        hidden_size=config.hidden_size,
        max_length=request.model.base_model.embeddings.available_positions,
        sequence_length=request.sequence_length,
        formats=request.formats,
        primary_metric=request.primary_metric,
        greater_is_better=request.greater_is_better,
        versions={
            "hf_elastic": __version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        details=details,
        supernet=supernet,
        members=members,
    )


def _write_cards(manifest: Manifest, folder: Path) -> None:
    everyone = (manifest.supernet, *manifest.members)
    for member in everyone:
        render_card(manifest, member).save(folder / member.name / "README.md")
    if manifest.primary_metric is None:
        return
    picture = folder / SUPERNET_NAME / PICTURE_NAME
    draw_pareto(manifest, picture)
    for member in manifest.members:
        shutil.copyfile(picture, folder / member.name / PICTURE_NAME)


def _with_files(manifest: Manifest, folder: Path) -> Manifest:
    """Adds the hashes, once every file is written."""
    return replace(
        manifest,
        supernet=replace(manifest.supernet, files=record_files(folder / SUPERNET_NAME)),
        members=[replace(member, files=record_files(folder / member.name)) for member in manifest.members],
    )
