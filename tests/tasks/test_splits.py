"""Splits are balanced, disjoint, complete and repeatable."""

from collections import Counter

import pytest

from hf_elastic.tasks.splits import stratified_split


def test_every_stratum_is_split_in_the_same_proportion():
    strata = ["a"] * 50 + ["b"] * 30 + ["c"] * 20
    first, second = stratified_split(strata, 0.2, seed=1)
    assert sorted(first + second) == list(range(100))
    assert Counter(strata[i] for i in second) == {"a": 10, "b": 6, "c": 4}
    assert stratified_split(strata, 0.2, seed=1) == (first, second)
    assert stratified_split(strata, 0.2, seed=2) != (first, second)


def test_the_second_part_has_exactly_the_size_that_was_asked_for():
    strata = ["a"] * 13 + ["b"] * 7 + ["c"] * 11 + ["d"] * 2
    for size in range(1, 20):
        _, second = stratified_split(strata, size / len(strata), seed=0)
        assert len(second) == size


def test_a_single_row_of_its_kind_goes_to_the_first_part():
    first, second = stratified_split(["a", "a", "b"], 0.9, seed=0)
    assert 2 in first
    assert len(second) == 1


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 2])
def test_a_fraction_outside_the_unit_interval_is_an_error(fraction):
    with pytest.raises(ValueError, match="cannot be split off"):
        stratified_split(["a", "b"], fraction, seed=0)
