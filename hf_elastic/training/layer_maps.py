"""Which layer of a student learns from which layer of a teacher.

Layers count from 1 throughout, which makes them indices into a tuple of hidden states, where 0 is the output of the
embeddings.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

LAYER_MAPS = ("even", "last")
LayerMap = str | Mapping[Any, int]

_EXAMPLE = """Give "even", "last", or the teacher's layer of each student's layer, e.g. '{"1": 2, "6": 12}'."""


def layer_pairs(
    layer_map: LayerMap, student_layers: int, teacher_layers: int, kept_layers: Sequence[int] | None = None
) -> list[tuple[int, int]]:
    """Pairs of layers to align.

    `"even"` and `"last"` speak of the layers that a size has. An explicit map speaks of the layers of the full
    student, so that one map serves all sizes: the pairs of layers that a size leaves out are dropped, and none may be
    left.

    Args:
        layer_map: `"even"` for layers that are evenly spaced, `"last"` for the last layers alone, or the teacher's
            layer of each student's layer that learns, as a mapping or its JSON text.
        student_layers: Number of layers of the full student.
        teacher_layers: Number of layers of the teacher.
        kept_layers: Indices of the full student's layers that a size runs, from 0. None means all.

    Returns:
        Pairs (layer of the size, layer of the teacher), both from 1: what a forward pass of the size numbers so.

    Raises:
        ValueError: If the map is none, or names a layer that does not exist, see [`check_layer_map`].

    References:
        Jiao et al. 2020, TinyBERT (evenly spaced), https://arxiv.org/abs/1909.10351
        Wang et al. 2020, MiniLM (the last layer alone), https://arxiv.org/abs/2002.10957

    Example:
        >>> layer_pairs({1: 2, 2: 4, 3: 6}, 3, 6, kept_layers=(0, 2))
        [(1, 2), (2, 6)]
    """
    check_layer_map(layer_map, student_layers, teacher_layers)
    kept = range(student_layers) if kept_layers is None else kept_layers
    if layer_map == "even":
        return even_layer_map(len(kept), teacher_layers)
    if layer_map == "last":
        return [(len(kept), teacher_layers)]
    positions = {layer + 1: position for position, layer in enumerate(kept, start=1)}
    return [(positions[ours], theirs) for ours, theirs in read_layer_map(layer_map).items() if ours in positions]


def check_layer_map(layer_map: LayerMap, student_layers: int, teacher_layers: int) -> None:
    """Checks a map against the models, before the training.

    Args:
        layer_map: The map, as [`layer_pairs`] takes it.
        student_layers: Number of layers of the full student.
        teacher_layers: Number of layers of the teacher.

    Raises:
        ValueError: If the map is neither a known word nor a map, is empty, or names a layer that does not exist.
    """
    pairs = read_layer_map(layer_map)
    if isinstance(pairs, str):
        return
    for ours, theirs in pairs.items():
        for side, layer, layers in (("student", ours, student_layers), ("teacher", theirs, teacher_layers)):
            if not 1 <= layer <= layers:
                raise ValueError(
                    f"The layer map {layer_map!r} names layer {layer} of the {side}, which has the layers 1 to "
                    f"{layers}. {_EXAMPLE}"
                )


def read_layer_map(layer_map: LayerMap) -> str | dict[int, int]:
    """Reads a map as it is given on the command line or in a file.

    Args:
        layer_map: The map, as [`layer_pairs`] takes it.

    Returns:
        `"even"`, `"last"`, or the teacher's layer of each student's layer, in ascending order.

    Raises:
        ValueError: If it is none of these, or empty.

    Example:
        >>> read_layer_map('{"6": 12, "1": 2}')
        {1: 2, 6: 12}
    """
    if layer_map in LAYER_MAPS:
        return layer_map
    pairs = layer_map
    if isinstance(layer_map, str):
        try:
            pairs = json.loads(layer_map)
        except json.JSONDecodeError:
            raise ValueError(f"The layer map {layer_map!r} is unknown. {_EXAMPLE}") from None
    if not isinstance(pairs, Mapping):
        raise ValueError(f"The layer map {layer_map!r} is no mapping. {_EXAMPLE}")
    if not pairs:
        raise ValueError(f"The layer map {layer_map!r} is empty. {_EXAMPLE}")
    return dict(sorted((_layer(ours, layer_map), _layer(theirs, layer_map)) for ours, theirs in pairs.items()))


def even_layer_map(student_layers: int, teacher_layers: int) -> list[tuple[int, int]]:
    """Pairs of layers to align: evenly spaced, in order, the last with the last.

    The side with fewer layers has each of them aligned once.

    Args:
        student_layers: Number of layers of the student.
        teacher_layers: Number of layers of the teacher.

    Returns:
        Pairs (index of the student's hidden state, index of the teacher's).

    References:
        Jiao et al. 2020, TinyBERT, https://arxiv.org/abs/1909.10351

    Example:
        >>> even_layer_map(3, 6)
        [(1, 2), (2, 4), (3, 6)]
    """
    if student_layers < 1 or teacher_layers < 1:
        raise ValueError(
            f"A layer map needs at least one layer on each side, got student_layers={student_layers} and "
            f"teacher_layers={teacher_layers}."
        )
    pairs = min(student_layers, teacher_layers)
    return [(i * student_layers // pairs, i * teacher_layers // pairs) for i in range(1, pairs + 1)]


def _layer(value: Any, layer_map: LayerMap) -> int:
    """A layer's number; the keys of JSON are always text."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"The layer map {layer_map!r} has {value!r} for a layer's number. {_EXAMPLE}")
    return value
