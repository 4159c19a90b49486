"""The configurations for several processes: accelerate reads them, and they ask for what they say."""

import argparse
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

from hf_elastic.modeling.layers_elastic import ElasticLayer
from tests.training.cases import make_model

FOLDER = Path(__file__).parents[2] / "examples" / "accelerate"
FILES = sorted(FOLDER.glob("*.yaml"))
FSDP = [path for path in FILES if path.name.startswith("fsdp")]
DEEPSPEED = [path for path in FILES if path.name.startswith("zero")]


def launch_arguments(path: Path) -> argparse.Namespace:
    """What the launcher makes of a file."""
    arguments = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    return _validate_launch_command(arguments)[0]


def test_there_is_one_for_each_way():
    assert [path.stem for path in FILES] == ["ddp", "fsdp2", "zero2", "zero3", "zero3_offload"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_accelerate_knows_every_key(path):
    load_config_from_file(str(path))  # raises for keys that it does not know, but looks into no group
    options = {action.dest for action in launch_command_parser()._actions}
    contents = yaml.safe_load(path.read_text(encoding="utf-8"))
    for group in ("fsdp_config", "deepspeed_config"):
        assert contents.get(group, {}).keys() <= options
    assert f"--config_file examples/accelerate/{path.name} examples/accelerate/train.py" in path.read_text()


@pytest.mark.parametrize("path", FSDP, ids=lambda path: path.stem)
def test_fsdp_splits_layer_by_layer(path, monkeypatch):
    for name, value in prepare_multi_gpu_env(launch_arguments(path)).items():
        if name.startswith(("FSDP_", "ACCELERATE_USE_FSDP")):
            monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    model = make_model("classification")
    plugin.set_auto_wrap_policy(model)
    assert plugin.fsdp_version == 2
    assert plugin.activation_checkpointing and plugin.reshard_after_forward
    assert plugin.state_dict_type.name == "FULL_STATE_DICT"
    wrapped = [m for m in model.modules() if plugin.auto_wrap_policy(m, recurse=False, nonwrapped_numel=0)]
    assert wrapped == [m for m in model.modules() if isinstance(m, ElasticLayer)]


@pytest.mark.parametrize("path", DEEPSPEED, ids=lambda path: path.stem)
def test_deepspeed_splits_what_the_name_says(path):
    arguments = launch_arguments(path)
    arguments.deepspeed_fields_from_accelerate_config = ""  # which the launcher adds when it launches
    _, environment = prepare_deepspeed_cmd_env(arguments)
    assert environment["ACCELERATE_USE_DEEPSPEED"] == "true"
    assert environment["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == path.stem[len("zero")]
    offloads = "cpu" if "offload" in path.stem else "none"
    assert environment["ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"] == offloads
    assert environment["ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE"] == offloads
    if "zero3" in path.stem:
        assert environment["ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"] == "true"
