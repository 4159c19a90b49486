"""What has to be known of a family of checkpoints to convert it, and to go back."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedConfig

from ...modeling.configuration_elastic import ElasticConfig

# A field's name if both configurations have it, else its name in the source and its name in `ElasticConfig`.
Field = str | tuple[str, str]

# What configurations of all types say about a head and its training. The last is only in those that came from here.
HEAD_FIELDS = ("id2label", "label2id", "problem_type", "preprocessing")

# What answers to questions are, and so all that a head for them gives.
START_AND_END = {"num_labels": 2}


class UnsupportedSourceError(ValueError):
    """Raised for a checkpoint that cannot be converted exactly. Its message lists what can."""


@dataclass(frozen=True)
class Head:
    """One class of a source and the elastic class that takes its weights.

    Args:
        elastic_class (`str`):
            Name of the class in `modeling_elastic`.
        settings (`Mapping[str, Any]`):
            Fields of the elastic configuration that this class fixes.
        fields (`tuple[Field, ...]`):
            Fields that only this class reads, in addition to the source's.
        required (`Mapping[str, Any]`):
            Source fields that must have a certain value for this class alone, see [`Source`].
        weights (`tuple[tuple[str, str], ...]`):
            Pairs of name fragments that turn this class's weight names into those that the rest of the source's
            mapping knows, see [`Source`].
        aliases (`Mapping[str, str]`):
            Second names of weights in the source, with the first ones.
        dropped (`tuple[str, ...]`):
            Prefixes of source weights that the elastic model has no place for and its output does not depend on.
        optional_pooler (`bool`):
            Whether the class has a pooler or not, as its `add_pooling_layer` says.
        invertible (`bool`):
            Whether a member goes back to this class, see [`~hf_elastic.to_stock`].
    """

    elastic_class: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    required: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[tuple[str, str], ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    optional_pooler: bool = False
    invertible: bool = True


@dataclass(frozen=True)
class Source:
    """A family of checkpoints as a mapping: configuration, weights and classes.

    Args:
        model_type (`str`):
            The `model_type` of its configuration.
        heads (`Mapping[str, Head]`):
            What each of its classes becomes, by class name; for each elastic class the one that is loaded for a task
            comes first.
        fields (`tuple[Field, ...]`):
            Fields of its configuration with those of [`ElasticConfig`] that they become. Where several become one, the
            last of them counts; they all get its value on the way back. Where one becomes several, the first of them
            counts on the way back.
        settings (`Mapping[str, Any]`):
            Fields of the elastic configuration that are the same for all its checkpoints.
        required (`Mapping[str, Any]`):
            Fields of its configuration that must have a certain value, because the elastic model cannot express
            others. A configuration that lacks a field passes.
        layer_types (`tuple[str, ...]`):
            What kinds of attention its layers can have.
        weights (`tuple[tuple[str, str], ...]`):
            Pairs of name fragments (source, elastic). Replaced from the first to the last they turn a source's weight
            name into the elastic one; replaced the other way in reverse order they turn it back.
        fused (`tuple[tuple[str, tuple[str, ...]], ...]`):
            Fragments of names, after these replacements, that stand for several elastic weights of one size, and the
            fragments of these: the rows of the source's weight are those of the first, then of the second, ...
    """

    model_type: str
    heads: Mapping[str, Head]
    fields: tuple[Field, ...]
    weights: tuple[tuple[str, str], ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    layer_types: tuple[str, ...] = ("full_attention",)
    fused: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def class_for(self, elastic_class: str) -> str:
        """Gives the name of the class that is loaded to become an elastic class."""
        return next(name for name, head in self.heads.items() if head.elastic_class == elastic_class)

    def elastic_config(self, config: PreTrainedConfig, head: Head, **fields: Any) -> ElasticConfig:
        """Translates a configuration of the source.

        Args:
            config (`PreTrainedConfig`):
                The source's configuration.
            head ([`Head`]):
                The source's class.
            **fields:
                Other fields of the elastic configuration, where the source does not fix them.

        Raises:
            UnsupportedSourceError: If a field has a value that the elastic model cannot express.
        """
        for name, possible in {**self.required, **head.required}.items():
            found = getattr(config, name, possible)
            if found != possible:
                raise UnsupportedSourceError(f"{name}={found!r} cannot be converted, only {name}={possible!r} can.")
        if config.is_heterogeneous:
            raise UnsupportedSourceError(
                "per_layer_config is set, but the layers of a source are all of one size: remove it."
            )
        head_fields = {name: getattr(config, name, None) for name in HEAD_FIELDS}
        values = fields | head_fields | _taken(self.fields, config) | self.settings | _taken(head.fields, config)
        try:
            return ElasticConfig(**(values | head.settings))
        except ValueError as error:
            raise UnsupportedSourceError(f"The checkpoint cannot be converted: {error}") from None

    def source_fields(self, config: ElasticConfig, head: Head) -> dict[str, Any]:
        """Gives the fields of the source's configuration for that of a member whose layers are all of one size."""
        values: dict[str, Any] = {}
        for source, elastic in _pairs(self.fields + head.fields):
            value = getattr(config, elastic)
            # No dropout of its own is something that not every class can say: it has its default then.
            if value is not None or elastic != "classifier_dropout":
                values.setdefault(source, copy.deepcopy(value))
        return values

    def merged_fields(self, config: PreTrainedConfig) -> list[dict[str, Any]]:
        """Gives the groups of fields, with their values, that differ and become one in the elastic configuration."""
        groups: dict[str, dict[str, Any]] = {}
        for source, elastic in _pairs(self.fields):
            groups.setdefault(elastic, {})[source] = getattr(config, source)
        return [group for group in groups.values() if len(group) > 1 and len(set(group.values())) > 1]

    def elastic_weights(self, weights: Mapping[str, torch.Tensor], head: Head) -> dict[str, torch.Tensor]:
        """Translates the weights of one of the source's models, as its `state_dict` has them."""
        elastic_weights = {}
        for name, weight in weights.items():
            if name in head.aliases or name.startswith(head.dropped):
                continue
            for source, elastic in (*head.weights, *self.weights):
                name = name.replace(source, elastic)
            for fragment, parts in self.fused:
                if fragment in name:
                    for part, rows in zip(parts, weight.chunk(len(parts)), strict=True):
                        elastic_weights[name.replace(fragment, part)] = rows
                    break
            else:
                elastic_weights[name] = weight
        return elastic_weights

    def source_weights(self, weights: Mapping[str, torch.Tensor], head: Head) -> dict[str, torch.Tensor]:
        """Translates the weights of an elastic model, whose layers each have their own."""
        weights = dict(weights)
        for fragment, parts in self.fused:
            for name in [name for name in weights if parts[0] in name]:
                rows = [weights.pop(name.replace(parts[0], part)) for part in parts]
                weights[name.replace(parts[0], fragment)] = torch.cat(rows)
        source_weights = {}
        for name, weight in weights.items():
            for source, elastic in reversed((*head.weights, *self.weights)):
                name = name.replace(elastic, source)
            source_weights[name] = weight
        return source_weights | {alias: source_weights[name] for alias, name in head.aliases.items()}


def _pairs(fields: tuple[Field, ...]) -> list[tuple[str, str]]:
    return [(field, field) if isinstance(field, str) else field for field in fields]


def _taken(fields: tuple[Field, ...], config: PreTrainedConfig) -> dict[str, Any]:
    """Gives copies, since a configuration completes its dictionaries in place."""
    return {elastic: copy.deepcopy(getattr(config, source)) for source, elastic in _pairs(fields)}
