"""What has to be known of a family of checkpoints to convert it, and to go back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedConfig


class UnsupportedSourceError(ValueError):
    """Raised for a checkpoint that cannot be converted exactly. Its message lists what can."""


@dataclass(frozen=True)
class Head:
    """One class of a source and the elastic class that takes its weights.

    Args:
        elastic_class (`str`):
            Name of the class in `modeling_elastic`.
        settings (`Mapping[str, Any]`):
            Fields of the elastic configuration that this head fixes.
        weights (`tuple[tuple[str, str], ...]`):
            Pairs of name fragments of this head alone, see [`Source`].
        aliases (`Mapping[str, str]`):
            Second names of weights in the source, with the first ones.
        dropped (`tuple[str, ...]`):
            Prefixes of source weights that the elastic model has no place for and its output does not depend on.
        invertible (`bool`):
            Whether a member goes back to this class, see [`~hf_elastic.to_stock`].
    """

    elastic_class: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[tuple[str, str], ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    invertible: bool = True


@dataclass(frozen=True)
class Source:
    """A family of checkpoints as a mapping: configuration, weights and classes.

    Args:
        model_type (`str`):
            The `model_type` of its configuration.
        heads (`Mapping[str, Head]`):
            What each of its classes becomes, by class name.
        weights (`tuple[tuple[str, str], ...]`):
            Pairs of name fragments (source, elastic). Replaced from the first to the last they turn a source's weight
            name into the elastic one; replaced the other way in reverse order they turn it back.
        elastic_settings (`Callable`):
            Gives the fields of [`ElasticConfig`] for a source configuration. Raises [`UnsupportedSourceError`] for a
            field that the elastic model cannot express.
        stock_settings (`Callable`):
            Gives the source configuration's fields for the configuration of a member. Raises `ValueError` that names
            the setting which stands in the way.
    """

    model_type: str
    heads: Mapping[str, Head]
    weights: tuple[tuple[str, str], ...]
    elastic_settings: Callable[[PreTrainedConfig], dict[str, Any]]
    stock_settings: Callable[[PreTrainedConfig], dict[str, Any]]

    def to_elastic_name(self, name: str, head: Head) -> str:
        """Translates the name of a weight of the source."""
        for source, elastic in (*head.weights, *self.weights):
            name = name.replace(source, elastic)
        return name

    def to_source_name(self, name: str, head: Head) -> str:
        """Translates the name of an elastic weight."""
        for source, elastic in reversed((*head.weights, *self.weights)):
            name = name.replace(elastic, source)
        return name
