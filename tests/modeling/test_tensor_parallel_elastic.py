"""Layers that are split between two processes give what whole ones give, or an error."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.modeling import tensor_parallel_worker
from tests.modeling.tensor_parallel_worker import MODELS, SUBNETS, results_of
from tests.training.cases import assert_same_gradients, make_model
from tests.training.launching import run_two_processes


@pytest.fixture(scope="module")
def split_between_two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("split")
    run_two_processes(tensor_parallel_worker.__file__, folder)
    return folder, torch.load(folder / "results.pt", weights_only=True)


@pytest.mark.parametrize("subnet", SUBNETS)
@pytest.mark.parametrize("case", MODELS)
def test_losses_and_gradients_are_those_of_one_process(split_between_two, case, subnet):
    actual = split_between_two[1][case]
    expected = results_of(make_model(case, **MODELS[case]), case)[subnet]
    assert actual["part"] == 0.5
    assert actual[subnet]["losses"] == pytest.approx(expected["losses"], rel=1e-5)
    assert_same_gradients([actual[subnet]["gradients"]], [expected["gradients"]])


@pytest.mark.parametrize("case", MODELS)
def test_a_split_model_saves_whole_weights(split_between_two, case):
    model = make_model(case, **MODELS[case])
    saved = type(model).from_pretrained(split_between_two[0] / case / "saved")
    assert saved.config.subnets == model.config.subnets
    for name, value in model.state_dict().items():
        assert torch.equal(saved.state_dict()[name], value)


def test_parts_of_layers_are_an_error(split_between_two):
    errors = split_between_two[1]
    for case in MODELS:
        assert "num_attention_heads=2 of 4 in layer 0" in errors[case]["error"]
        assert "hf_elastic.extract" in errors[case]["error"]


def test_heads_that_cannot_be_shared_are_an_error(split_between_two):
    assert "tp_size=2 does not divide num_attention_heads=3 of layer 0" in split_between_two[1]["odd"]


def test_learnable_sparsities_are_an_error(split_between_two):
    assert "Layer 0 is of type 'block_sparse_attention'" in split_between_two[1]["sparse"]
