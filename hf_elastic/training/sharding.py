"""Weights and gradients that are split between processes: by FSDP, DeepSpeed or tensor parallelism."""

from collections.abc import Iterable

import torch
from accelerate.utils import parse_flag_from_env
from torch import distributed, nn
from transformers import Trainer

from .arguments import ElasticTrainingArguments


def is_sharded(trainer: Trainer) -> bool:
    """Whether processes hold parts of weights or gradients, by whichever way.

    Args:
        trainer: A trainer that has made its accelerator.
    """
    loaded_in_parts = trainer.is_distributed_loading_by_transformers
    return trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled or loaded_in_parts


def check_launch(trainer: Trainer) -> None:
    """Raises ValueError if processes would silently train by themselves, or without FSDP or DeepSpeed as asked for.

    Args:
        trainer: A trainer that has made its accelerator.
    """
    known = trainer.accelerator.num_processes
    running = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
    if running > known:
        raise ValueError(
            f"{running} processes run, but accelerate knows of {known}, so that each would read all of the data. Give "
            "use_cpu=True to train on CPUs; otherwise let accelerate or torchrun start the processes, on GPUs."
        )
    args, several = trainer.args, known > 1
    # Of one process the variables say little: accelerate leaves them set when a trainer before asked for either.
    wanted = {
        "FSDP": (bool(args.fsdp) or (several and parse_flag_from_env("ACCELERATE_USE_FSDP")), trainer.is_fsdp_enabled),
        "DeepSpeed": (
            bool(args.deepspeed) or (several and parse_flag_from_env("ACCELERATE_USE_DEEPSPEED")),
            trainer.is_deepspeed_enabled,
        ),
    }
    remedies = {
        "FSDP": "To split a model on CPUs, load it with from_pretrained(..., distributed_config=DistributedConfig("
        "fsdp_size=...)); otherwise leave FSDP out (fsdp, ACCELERATE_USE_FSDP).",
        "DeepSpeed": "On CPUs, give use_cpu=True and set DS_ACCELERATOR=cpu, but not ACCELERATE_USE_CPU; otherwise "
        "leave DeepSpeed out (deepspeed, ACCELERATE_USE_DEEPSPEED).",
    }
    for name, (is_wanted, is_on) in wanted.items():
        if is_wanted and not is_on and not trainer.is_fsdp_xla_enabled:
            kind = trainer.accelerator.distributed_type.value
            raise ValueError(
                f"{name} was asked for, but this training would run without it: accelerate chose {kind} for "
                f"{known} process(es) on {trainer.args.device}. {remedies[name]}"
            )


def check_tied_weights(model: nn.Module) -> None:
    """Raises ValueError if FSDP would train with two copies of a weight that two modules share.

    `from_pretrained` splits a model before it ties weights, so that each of the modules has a buffer of its own where
    the rows of the last processes are padded. The optimizer updates one of them.

    Args:
        model: The model, loaded in parts or not.
    """
    processes = getattr(getattr(model.config, "distributed_config", None), "fsdp_size", 1)
    for target, source in model.all_tied_weights_keys.items():
        rows = len(model.get_parameter(source))
        if rows % processes:
            raise ValueError(
                f"{target} is tied to {source}, and fsdp_size={processes} does not divide its {rows} rows: "
                "the two would drift apart. Load it with a divisor, with tie_word_embeddings=False or with more rows "
                "(resize_token_embeddings), or train with the FSDP of accelerate."
            )


def zero_stage(trainer: Trainer) -> int:
    """The stage of ZeRO that DeepSpeed runs, 0 without DeepSpeed."""
    return trainer.accelerator.state.deepspeed_plugin.zero_stage if trainer.is_deepspeed_enabled else 0


def check_sharding(args: ElasticTrainingArguments, has_projections: bool = False, stage: int = 0) -> None:
    """Checks the arguments of a training whose weights or gradients are split.

    Args:
        args: The arguments.
        has_projections: Whether teachers have another hidden size, so that projections are trained.
        stage: The stage of ZeRO.

    Raises:
        ValueError: If a setting needs whole weights and gradients, or reduces them by itself, or leaves layers out of
            steps where ZeRO-3 would take these layers' last gradients again.
    """
    skipping = {"sampling": args.sampling == "one_per_step", "layer_drop": args.layer_drop > 0}
    for name, skips in skipping.items():
        if stage == 3 and skips:
            raise ValueError(
                f"{name}={getattr(args, name)!r} has steps that do not run all layers, and ZeRO-3 changes the "
                "others by the gradients of an earlier step. Use ZeRO-2, or sampling='sandwich' and layer_drop=0."
            )
    neutral = {
        "core_gradient_scale": 1,
        "gradient_conflicts": "add",
        "group_penalty": 0,
        "adapt_micro_batch_size": False,
        "weight_averaging": "none",
    }
    for name, value in neutral.items():
        if getattr(args, name) != value:
            raise ValueError(
                f"{name}={getattr(args, name)!r} does not work with FSDP, DeepSpeed and tensor parallelism, which "
                f"split gradients and weights between the processes. Give {value!r}, or train with DDP."
            )
    if has_projections:
        raise ValueError(
            f"hidden_weight={args.hidden_weight} and embedding_weight={args.embedding_weight} compare features with a "
            "teacher of another hidden size, whose projections FSDP, DeepSpeed and tensor parallelism do not split. "
            "Give 0 for both, take a teacher of the same hidden size, or train with DDP."
        )


def fill_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Gives zero gradients to parameters without any, as DDP and a single process have them.

    What no pass of a step ran is neither gathered nor reduced by FSDP. The optimizer would leave it out, weight decay
    and momentum included.

    Args:
        parameters: Those of the model, which may be split.
    """
    for parameter in parameters:
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
