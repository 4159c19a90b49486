"""Recipes: everything that makes a family, from the source to the names on the Hub, in one YAML file.

The dataclasses are the format: field names are the file's keys. Reading checks every key and value, so that a typing
mistake is found before anything is loaded.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from .compression.convert import TASKS
from .hub.details import TrainingDetails
from .hub.formats import check_formats
from .hub.manifest import SUPERNET_NAME
from .modeling.configuration_elastic import ElasticConfig
from .modeling.subnet_elastic import MULTIPLIERS, SubnetConfig
from .resources import hub_configs_folder
from .training.argument_checks import check_type
from .training.arguments import ElasticTrainingArguments

# Four sizes that suit most encoders, the smallest with less than a quarter of the encoder's parameters.
DEFAULT_SUBNETS: dict[str, dict[str, float]] = {
    "large": {},
    "base": {"depth": 0.67, "width": 0.75},
    "small": {"depth": 0.5, "width": 0.5},
    "tiny": {"depth": 0.34, "width": 0.5},
}

# Training arguments that go by the name of a setting.
RENAMED_ARGUMENTS = {"num_train_epochs": "cotrain_epochs", "per_device_train_batch_size": "batch_size"}


@dataclass(frozen=True)
class TrainingSettings:
    """How a family is trained: the full model is fine-tuned, its units are ranked, all sizes are trained together.

    Args:
        max_length: Tokens to which a text is cut.
        batch_size: Rows per step, in one process.
        learning_rate: Highest learning rate, of both trainings; it rises over the first tenth and then falls to 0.
        finetune_epochs: Epochs of the full model alone; 0 leaves this out.
        cotrain_epochs: Epochs of all sizes together.
        rank_examples: Training rows to rank the units by; 0 leaves them in the order they are in.
        train_rows: Training rows to use, stratified by label. Default: all.
        sampling: See [`ElasticTrainingArguments`], as for the fields that follow.
        seed: Seed of everything that is drawn.
        other_arguments: Any other [`ElasticTrainingArguments`] by name.

    Raises:
        TypeError: If a value is not of the annotated kind.
        ValueError: If a value is out of range.
    """

    max_length: int = 128
    batch_size: int = 16
    learning_rate: float = 5e-5
    finetune_epochs: float = 2.0
    cotrain_epochs: float = 2.0
    rank_examples: int = 256
    train_rows: int | None = None
    sampling: str = "sandwich"
    num_random_subnets: int = 1
    distillation_weight: float = 1.0
    hidden_weight: float = 0.1
    temperature: float = 1.0
    subnet_weights: dict[str, float] = field(default_factory=dict)
    seed: int = 42
    other_arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            check_type(name, value, kind)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name}={value} is not finite: give an ordinary number.")
        for name, smallest in (("max_length", 3), ("batch_size", 1), ("train_rows", 1), ("rank_examples", 0)):
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise ValueError(f"{name}={value} is smaller than {smallest}.")
        for name in ("finetune_epochs", "cotrain_epochs", "learning_rate"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} is negative.")
        self._check_other_arguments()

    def _check_other_arguments(self) -> None:
        own, kinds = {known.name for known in fields(self)}, _argument_kinds()
        possible = kinds.keys() - {*RENAMED_ARGUMENTS, "output_dir"}
        for name, value in self.other_arguments.items():
            if name == "output_dir":
                raise ValueError(
                    "other_arguments: 'output_dir' is no setting. The folder is given as -o (--output-dir)."
                )
            if name in own:
                raise ValueError(f"other_arguments: {name!r} is a setting of its own. Give it beside other_arguments.")
            if name in RENAMED_ARGUMENTS:
                raise ValueError(f"other_arguments: {name!r} is the setting {RENAMED_ARGUMENTS[name]!r}. Give that.")
            if name not in possible:
                similar = difflib.get_close_matches(name, possible | own)
                hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
                raise ValueError(f"other_arguments: {name!r} is no training argument.{hint}")
            check_type(f"other_arguments: {name}", value, kinds[name])

    def updated(self, **changes: Any) -> "TrainingSettings":
        """Gives the settings with those changes that are not None."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    def with_arguments(self, given: Mapping[str, Any]) -> "TrainingSettings":
        """Gives the settings with other training arguments, be they settings of their own or not.

        Args:
            given: Values by the names of settings and of [`ElasticTrainingArguments`].
        """
        own = {known.name for known in fields(self)} - {"other_arguments"}
        others = {name: value for name, value in given.items() if name not in own}
        changes = {name: value for name, value in given.items() if name in own}
        return replace(self, **changes, other_arguments={**self.other_arguments, **others})

    def arguments(self, output_dir: str | Path, **others: Any) -> ElasticTrainingArguments:
        """Gives the arguments of the common training.

        Args:
            output_dir: Folder for checkpoints.
            others: Other [`ElasticTrainingArguments`].
        """
        values: dict[str, Any] = {
            "num_train_epochs": self.cotrain_epochs,
            "learning_rate": self.learning_rate,
            "warmup_steps": 0.1,
            "per_device_train_batch_size": self.batch_size,
            "per_device_eval_batch_size": 4 * self.batch_size,
            "seed": self.seed,
            "sampling": self.sampling,
            "num_random_subnets": self.num_random_subnets,
            "distillation_weight": self.distillation_weight,
            "hidden_weight": self.hidden_weight,
            "temperature": self.temperature,
            "subnet_weights": dict(self.subnet_weights),
            "save_strategy": "no",
            "logging_steps": 10,
            "train_sampling_strategy": "group_by_length",
            "report_to": "none",
        }
        return ElasticTrainingArguments(output_dir=str(output_dir), **{**values, **self.other_arguments, **others})


@dataclass(frozen=True)
class Recipe:
    """A family to be made.

    Args:
        name: Name of the family.
        source: Hub id or folder of the checkpoint that it is made from.
        task: One of the tasks of [`convert`].
        subnets: Multipliers (`width`, `depth`, `heads`, `ffn`) of each size by its name; none is the full model.
        training: How it is trained.
        fast: What a fast trial changes of `training`.
        formats: Formats to export.
        repositories: Names on the Hub by size, and `supernet`'s.
        card: What the model cards say; fields of [`TrainingDetails`].

    Raises:
        TypeError: If a value is not of the annotated kind.
        ValueError: If a key is unknown or a value does not fit. It is named, with those that are possible.
    """

    name: str
    source: str
    task: str = "sequence-classification"
    subnets: dict[str, dict[str, float]] = field(default_factory=lambda: dict(DEFAULT_SUBNETS))
    training: TrainingSettings = field(default_factory=TrainingSettings)
    fast: dict[str, Any] = field(default_factory=dict)
    formats: tuple[str, ...] = ("safetensors",)
    repositories: dict[str, str] = field(default_factory=dict)
    card: TrainingDetails = field(default_factory=TrainingDetails)

    def __post_init__(self) -> None:
        for name in ("name", "source"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise TypeError(f"{name}={getattr(self, name)!r}: expected text.")
        if self.task not in TASKS:
            raise ValueError(f"task={self.task!r} is unknown: possible are {list(TASKS)}.")
        check_sizes(self.subnets)
        check_formats(self.formats)
        for size in self.repositories:
            if size not in (*self.subnets, SUPERNET_NAME):
                raise ValueError(f"repositories has {size!r}, and the sizes are {[*self.subnets, SUPERNET_NAME]}.")
        self.settings(fast=True)

    @classmethod
    def load(cls, name_or_path: str | Path) -> "Recipe":
        """Reads a recipe that ships with the package, or a file.

        Raises:
            FileNotFoundError: If there is none; lists those that ship with the package.
            ValueError, TypeError: If it cannot be used. Names the file, the key and the remedy.
        """
        path = Path(name_or_path)
        if not path.is_file():
            shipped = {found.stem: found for found in sorted(hub_configs_folder().glob("*.yaml"))}
            if str(name_or_path) not in shipped:
                raise FileNotFoundError(
                    f"There is no recipe {str(name_or_path)!r}: give a YAML file, or one of {', '.join(shipped)}."
                )
            path = shipped[str(name_or_path)]
        try:
            return cls.from_dict(yaml.safe_load(path.read_text(encoding="utf-8")))
        except yaml.YAMLError as error:
            raise ValueError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
        except (TypeError, ValueError) as error:
            raise type(error)(f"{path}: {error}") from None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """Makes a recipe of plain values, such as YAML gives.

        Raises:
            ValueError, TypeError: As the class says.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"A recipe is a mapping of keys to values, found {type(values).__name__}.")
        values = dict(values)
        _check_keys("the recipe", values, cls.__dataclass_fields__)
        for required in ("name", "source"):
            if required not in values:
                raise ValueError(f"The recipe lacks the key {required!r}.")
        for name in ("subnets", "training", "fast", "repositories", "card"):
            if name in values and not isinstance(values[name], Mapping):
                raise TypeError(f"{name}={values[name]!r}: expected a mapping of keys to values.")
        _check_keys("training", values.get("training", {}), TrainingSettings.__dataclass_fields__)
        return cls(
            **{
                **values,
                "training": TrainingSettings(**values.get("training", {})),
                "card": TrainingDetails.read(values.get("card")),
                "formats": tuple(values.get("formats", ("safetensors",))),
            }
        )

    def settings(self, fast: bool = False) -> TrainingSettings:
        """Gives the training settings, with the changes of a fast trial if `fast`."""
        if not fast:
            return self.training
        _check_keys("fast", self.fast, TrainingSettings.__dataclass_fields__)
        return replace(self.training, **self.fast)

    def to_dict(self) -> dict[str, Any]:
        """Gives the plain values, which [`Recipe.from_dict`] reads."""
        values = asdict(self)
        return {**values, "formats": list(self.formats)}


def subnet_configs(config: ElasticConfig, sizes: Mapping[str, Mapping[str, float]]) -> dict[str, SubnetConfig]:
    """Works out sizes for a supernet.

    Args:
        config: Configuration of the supernet.
        sizes: Multipliers of [`SubnetConfig.scaled`] by the name of each size.

    Raises:
        TypeError, ValueError: If a multiplier is unknown or out of range.
    """
    check_sizes(sizes)
    return {name: SubnetConfig.scaled(config, **multipliers) for name, multipliers in sizes.items()}


def check_sizes(sizes: Mapping[str, Mapping[str, float]]) -> None:
    """Checks multipliers before there is a model that they could be applied to.

    Raises:
        TypeError, ValueError: If there is no size, or a multiplier is unknown or out of range.
    """
    if not sizes:
        raise ValueError("subnets is empty: name at least one size.")
    for size, multipliers in sizes.items():
        if not isinstance(multipliers, Mapping):
            raise TypeError(f"subnets[{size!r}]={multipliers!r}: expected multipliers, e.g. {{width: 0.5}}.")
        _check_keys(f"subnets[{size!r}]", multipliers, MULTIPLIERS)
        for name, value in multipliers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
                raise ValueError(f"subnets[{size!r}]: {name}={value!r} is no multiplier in (0, 1].")


def _check_keys(where: str, values: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in values:
        if key not in known:
            raise ValueError(f"Unknown key {key!r} in {where}: possible are {', '.join(known)}.")


@cache
def _argument_kinds() -> dict[str, Any]:
    """The types of the training arguments by name."""
    kinds = get_type_hints(ElasticTrainingArguments)
    # What a command line takes for a flag without a value, such as `fsdp`, is a value too.
    flags = {argument.name: argument.metadata.get("const") for argument in fields(ElasticTrainingArguments)}
    return {name: kinds[name] if flag is None else kinds[name] | type(flag) for name, flag in flags.items()}
