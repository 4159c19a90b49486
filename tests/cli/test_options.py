"""Training arguments on the command line."""

import pytest
import typer

from hf_elastic.cli.options import read_arguments


def test_values_are_read_as_in_yaml():
    given = ["temperature=2.0", "bf16=true", 'layer_map={"1": 2}', "hidden_loss=cosine", "optim_args=eps=1"]
    assert read_arguments(given) == {
        "temperature": 2.0,
        "bf16": True,
        "layer_map": {"1": 2},
        "hidden_loss": "cosine",
        "optim_args": "eps=1",
    }
    assert read_arguments(None) is None


@pytest.mark.parametrize("given", ["temperature", "=2"])
def test_without_a_name_or_a_value(given):
    with pytest.raises(typer.BadParameter, match="write it as temperature=2.0"):
        read_arguments([given])
