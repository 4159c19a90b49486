"""`family.json`: what a family consists of, what its members cost and achieve, and the hash of every file.

The dataclasses are the format: field names are JSON's keys. Reading checks types against the annotations, so that a
damaged manifest is reported where it is damaged, and ignores keys that it does not know.
"""

import json
import sys
import types
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..compression.cost import Latency
from ..modeling.subnet_elastic import LayerSize, SubnetConfig
from .details import TrainingDetails
from .formats import CHECKPOINT_FORMAT

MANIFEST_NAME = "family.json"
SUPERNET_NAME = "supernet"
FORMAT_VERSION = 1


class FamilyError(ValueError):
    """A family on disk is damaged, incomplete or of an unknown format. The message names the file and the remedy."""


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and SHA-256 (hexadecimal) of one file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters. A tied output layer counts once, with the embeddings."""

    embeddings: int
    encoder: int
    head: int
    total: int


@dataclass(frozen=True)
class Layer:
    """A layer that a member keeps: its index in the supernet, and its sizes; see [`LayerSize`]."""

    layer: int
    num_attention_heads: int
    intermediate_size: int
    hidden_size: int
    num_experts: int = 1
    num_experts_per_tok: int = 1
    group: int | None = None


@dataclass(frozen=True)
class LatencyRecord(Latency):
    """A measured latency with where and when it was measured.

    Args:
        processor (`str`): Name of the processor or accelerator.
        date (`str`): Day of the measurement, ISO 8601.
    """

    processor: str
    date: str


@dataclass(frozen=True)
class Member:
    """One size of a family, or its supernet.

    Args:
        name (`str`): Name of the size and of its folder.
        subnet (`SubnetConfig`): What it keeps of the supernet.
        layers (`list[Layer]`): The same, resolved against the supernet.
        parameters (`Parameters`): Numbers of parameters.
        size_on_disk (`dict[str, int]`): Bytes of the weights in each exported format.
        flops (`int`): Floating point operations of a forward pass over one sequence of the family's `sequence_length`.
        latency (`LatencyRecord`): Measured time of the same pass.
        metrics (`dict[str, float]`): Metric names and values; empty if it was not evaluated.
        files (`dict[str, FileRecord]`): Every file, by its path within the member's folder.
    """

    name: str
    subnet: SubnetConfig
    layers: list[Layer]
    parameters: Parameters
    size_on_disk: dict[str, int]
    flops: int
    latency: LatencyRecord
    metrics: dict[str, float] = field(default_factory=dict)
    files: dict[str, FileRecord] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """Everything that `family.json` says.

    Args:
        format_version (`int`): Version of this format.
        name (`str`): Title of the family.
        created (`str`): Time of the export, ISO 8601 with time zone.
        source (`str`, *optional*): Hub id, or name of the folder, of the checkpoint that the supernet came from.
        source_model_type (`str`, *optional*): Its model type, e.g. `"bert"`.
        architecture (`str`): Class of the models, e.g. `"ElasticForSequenceClassification"`.
        task (`str`): The Hub's name of the task, e.g. `"text-classification"`.
        labels (`list[str]`): Label names in the order of the logits; empty for tasks without labels.
        hidden_size (`int`): Size of the hidden states.
        max_length (`int`): Longest input in tokens.
        sequence_length (`int`): Tokens per sequence in `flops` and `latency`.
        formats (`list[str]`): Exported formats.
        primary_metric (`str`, *optional*): The metric by which sizes are compared; the first one in tables.
        greater_is_better (`bool`): Whether a larger primary metric is better.
        versions (`dict[str, str]`): Versions of hf_elastic, transformers, torch and python.
        details (`TrainingDetails`): What the user said about purpose, data and training.
        supernet (`Member`): The elastic model that all sizes come from.
        members (`list[Member]`): The sizes, largest first.
    """

    format_version: int
    name: str
    created: str
    source: str | None
    source_model_type: str | None
    architecture: str
    task: str
    labels: list[str]
    hidden_size: int
    max_length: int
    sequence_length: int
    formats: list[str]
    primary_metric: str | None
    greater_is_better: bool
    versions: dict[str, str]
    details: TrainingDetails
    supernet: Member
    members: list[Member]

    def write(self, folder: Path) -> None:
        """Writes `family.json` into a folder.

        Raises:
            ValueError: If a number is not finite: JSON has none of these, and reading would refuse it.
        """
        text = json.dumps(self, default=_encode, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Reads `family.json` of a folder.

    Raises:
        FamilyError: If it is missing, no JSON, of an unknown format version, or a value is missing, of a wrong type or
            at odds with another one.
    """
    path = folder / MANIFEST_NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FamilyError(
            f"{path} cannot be read ({error.strerror}): give the folder that `export_family` wrote."
        ) from None
    except ValueError as error:
        raise FamilyError(f"{path} is not valid JSON ({error}): export or download the family again.") from None
    version = values.get("format_version") if isinstance(values, dict) else None
    if version != FORMAT_VERSION:
        raise FamilyError(
            f"{path} has format version {version!r}, and this version of hf_elastic reads {FORMAT_VERSION}: "
            "upgrade hf_elastic, or export the family again."
        )
    try:
        manifest = _decode(Manifest, values, where="")
        _check_members(manifest)
    except (TypeError, ValueError) as error:
        raise FamilyError(f"{path} is damaged: {error} Export or download the family again.") from None
    return manifest


def _check_members(manifest: Manifest) -> None:
    """Checks what types cannot say of members, and what tables and cards count on."""
    if not manifest.supernet.layers:
        raise ValueError("supernet.layers is empty.")
    full = [LayerSize(**asdict(layer)) for layer in manifest.supernet.layers]
    places = {"supernet": manifest.supernet, **{f"members[{i}]": member for i, member in enumerate(manifest.members)}}
    for place, member in places.items():
        if CHECKPOINT_FORMAT not in member.size_on_disk:
            raise ValueError(f"{place}.size_on_disk lacks {CHECKPOINT_FORMAT!r}, found {member.size_on_disk}.")
        try:
            layers = [Layer(*size) for size in member.subnet.select(full)]
        except ValueError as error:
            raise ValueError(f"{place}.subnet does not fit the supernet: {error}") from None
        if member.layers != layers:
            raise ValueError(f"{place}.layers is not what {place}.subnet keeps of the supernet.")


def _encode(value: Any) -> Any:
    """What `json` cannot write by itself: the records, field by field."""
    if isinstance(value, SubnetConfig):
        return value.to_dict()
    return {known.name: getattr(value, known.name) for known in fields(value)}


def _decode(kind: Any, value: Any, where: str) -> Any:
    """Reads a JSON value as an annotated type; errors say where it stands, e.g. `members[0].flops`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, value, where)
    if origin is list and isinstance(value, list):
        return [_decode(arguments[0], entry, f"{where}[{i}]") for i, entry in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: _decode(arguments[1], entry, f"{where}[{key!r}]") for key, entry in value.items()}
    if kind is SubnetConfig and isinstance(value, dict):
        return SubnetConfig.from_dict(value)
    if is_dataclass(kind) and isinstance(value, dict):
        return _decode_record(kind, value, where)
    if kind is float:
        # JSON has one kind of number, and Python's reader also lets NaN, infinities and integers of any size through.
        if type(value) in (int, float) and abs(value) <= sys.float_info.max:
            return float(value)
    elif origin is None and type(value) is kind:  # not isinstance: a boolean is no number
        return value
    raise TypeError(f"{where or 'the file'} should be {_readable(kind)}, found {value!r}.")


def _decode_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    for kind in kinds:
        try:
            return _decode(kind, value, where)
        except TypeError:
            continue
    raise TypeError(f"{where} should be {' or '.join(map(_readable, kinds))}, found {value!r}.")


def _decode_record(kind: type, values: dict[str, Any], where: str) -> Any:
    hints = get_type_hints(kind)
    decoded = {}
    for known in fields(kind):
        place = f"{where}.{known.name}".lstrip(".")
        if known.name in values:
            decoded[known.name] = _decode(hints[known.name], values[known.name], place)
        elif known.default is MISSING and known.default_factory is MISSING:
            raise ValueError(f"{place} is missing.")
    return kind(**decoded)


def _readable(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is list:
        return "a list"
    if origin is dict or is_dataclass(kind):
        return "an object"
    return {str: "text", int: "an integer", float: "a finite number", bool: "true or false", types.NoneType: "null"}[
        kind
    ]
