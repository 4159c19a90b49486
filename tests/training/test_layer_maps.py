"""Which layers are paired, for the full student and for sizes that leave layers out."""

import json

import pytest

from hf_elastic.training.layer_maps import check_layer_map, even_layer_map, layer_pairs, read_layer_map


@pytest.mark.parametrize(
    ("student", "teacher", "expected"),
    [
        (1, 4, [(1, 4)]),
        (2, 6, [(1, 3), (2, 6)]),
        (4, 6, [(1, 1), (2, 3), (3, 4), (4, 6)]),
        (3, 3, [(1, 1), (2, 2), (3, 3)]),
        (6, 3, [(2, 1), (4, 2), (6, 3)]),
    ],
)
def test_even(student, teacher, expected):
    assert even_layer_map(student, teacher) == expected
    assert layer_pairs("even", student, teacher) == expected


def test_even_always_fits_and_ends_at_the_last_layers():
    for student in range(1, 25):
        for teacher in range(1, 25):
            pairs = even_layer_map(student, teacher)
            assert len(pairs) == min(student, teacher)
            assert pairs[-1] == (student, teacher)
            for side, layers in zip(zip(*pairs, strict=True), (student, teacher), strict=True):
                assert list(side) == sorted(set(side)) and side[0] >= 1 and side[-1] <= layers


def test_even_without_layers():
    with pytest.raises(ValueError, match="student_layers=0"):
        even_layer_map(0, 4)


def test_last():
    assert layer_pairs("last", 6, 12) == [(6, 12)]


def test_words_speak_of_the_layers_that_a_size_has():
    assert layer_pairs("last", 6, 12, kept_layers=(0, 2, 4)) == [(3, 12)]
    assert layer_pairs("even", 6, 12, kept_layers=(0, 2, 4)) == [(1, 4), (2, 8), (3, 12)]


@pytest.mark.parametrize("layer_map", [{6: 12, 1: 2}, {"1": 2, "6": 12}, '{"1": 2, "6": 12}', {"6": "12", "1": "2"}])
def test_explicit(layer_map):
    assert layer_pairs(layer_map, 6, 12) == [(1, 2), (6, 12)]


def test_an_explicit_map_speaks_of_the_layers_of_the_full_student():
    layer_map = {1: 2, 3: 6, 4: 8, 6: 12}
    assert layer_pairs(layer_map, 6, 12, kept_layers=range(6)) == layer_pairs(layer_map, 6, 12)
    assert layer_pairs(layer_map, 6, 12, kept_layers=(0, 1, 3, 5)) == [(1, 2), (3, 8), (4, 12)]
    assert layer_pairs({2: 4}, 6, 12, kept_layers=(0, 5)) == []


def test_what_was_read_reads_the_same_again():
    pairs = read_layer_map('{"6": 12, "1": 2}')
    assert list(pairs.items()) == [(1, 2), (6, 12)]
    assert read_layer_map(json.dumps(pairs)) == read_layer_map(pairs) == pairs
    assert read_layer_map("last") == "last"


@pytest.mark.parametrize(
    ("layer_map", "message"),
    [
        ("first", "'first' is unknown.*even.*last"),
        ('{"1": 2', "is unknown"),
        ("[1, 2]", "no mapping"),
        ([1, 2], "no mapping"),
        ({}, "empty"),
        ("{}", "empty"),
        ({1: 1.5}, "1.5 for a layer's number"),
        ({1: True}, "True for a layer's number"),
        ({"one": 1}, "'one' for a layer's number"),
        ({7: 12}, "layer 7 of the student, which has the layers 1 to 6"),
        ({0: 12}, "layer 0 of the student, which has the layers 1 to 6"),
        ({6: 13}, "layer 13 of the teacher, which has the layers 1 to 12"),
    ],
)
def test_a_wrong_map_is_named(layer_map, message):
    with pytest.raises(ValueError, match=message):
        check_layer_map(layer_map, 6, 12)
    with pytest.raises(ValueError, match=message):
        layer_pairs(layer_map, 6, 12)


@pytest.mark.parametrize("layer_map", ["even", "last", {"1": 2, "6": 12}, '{"6": 1}'])
def test_a_right_map_passes(layer_map):
    check_layer_map(layer_map, 6, 12)
