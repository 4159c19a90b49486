from dataclasses import replace

import pytest

from hf_elastic.hub.table import family_table, markdown_table, megabytes, metric_names, table_cell, with_unit


def test_one_row_per_member(manifest):
    rows = family_table(manifest)
    assert rows[0] == {
        "size": "large",
        "parameters": "22.7 M",
        "encoder": "10.7 M",
        "MB": "90.8",
        "FLOPs": "2.27 G",
        "ms": "20.0",
        "accuracy": "0.9750",
        "f1": "0.9700",
    }
    assert [row["size"] for row in rows] == ["large", "small", "tiny"]
    assert rows[2]["accuracy"] == "–"


def test_the_primary_metric_comes_first(manifest):
    assert metric_names(replace(manifest, primary_metric="f1")) == ["f1", "accuracy"]


def test_markdown():
    assert markdown_table([{"size": "a", "MB": "1.0"}, {"size": "b", "MB": "2.0"}]) == (
        "| size | MB |\n| :-- | --: |\n| a | 1.0 |\n| b | 2.0 |"
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00 k"),
        (9994, "9.99 k"),
        (9995, "10.0 k"),
        (99_940, "99.9 k"),
        (99_950, "100 k"),
        (999_499, "999 k"),
        (999_500, "1.00 M"),
        (22_713_216, "22.7 M"),
        (2_720_000_000, "2.72 G"),
        (3_000_000_000_000, "3.00 T"),
    ],
)
def test_units(number, text):
    assert with_unit(number) == text


def test_cells_hold_whatever_they_are_given():
    assert table_cell("a | b\nc") == r"a \| b c"
    assert table_cell(2e-5) == "2e-05"


def test_megabytes():
    assert megabytes(90_864_192) == "90.9"
    assert megabytes(4_096) == "0.004"
