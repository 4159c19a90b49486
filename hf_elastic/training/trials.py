"""Trial trainings: real steps of a trainer that are taken back afterwards, and leave no trace."""

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback

from .base_trainer import BaseTrainer
from .step_notes import StepNotes
from .trainer import ElasticTrainer

# Without files, evaluations and uploads, unless a trial is about them.
_SETTINGS = {
    "logging_strategy": "steps",
    "logging_steps": 1,
    "logging_nan_inf_filter": False,
    "eval_strategy": "no",
    "eval_on_start": False,
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "push_to_hub": False,
}


def make_trial(trainer: Trainer, settings: Mapping[str, Any], callbacks: Sequence[TrainerCallback] = ()) -> Trainer:
    """Makes a trainer of the same model and data that leaves files, callbacks and attributes of the first one alone.

    The model is the same one: train within [`restored`].

    Args:
        trainer: The trainer, before or after a training.
        settings: What its training arguments are to be instead. Files are only written where these say so.
        callbacks: The only ones, beside that of the trainer's own flow.
    """
    trial = copy.copy(trainer)
    trial.args = copy.copy(trainer.args)
    for name, value in {**_SETTINGS, **settings}.items():
        setattr(trial.args, name, value)
    trial.model_init = trial.optimizer = trial.lr_scheduler = None
    trial._created_lr_scheduler = False  # as after a training, which would have its schedule made anew
    trial.state, trial.control = TrainerState(), TrainerControl()
    trial.callback_handler = CallbackHandler(
        [DefaultFlowCallback(), *callbacks], trial.model, trial.processing_class, None, None
    )
    if isinstance(trial, BaseTrainer):
        trial._run_record = trial._own_callbacks = None
    if isinstance(trial, ElasticTrainer):
        trial._notes = StepNotes()
        trial.subnets = {}  # so that sampler and objective are made anew, by the settings
        if trial.projection_training is not None:
            trial.projection_training = copy.deepcopy(trial.projection_training)
            trial.add_callback(trial.projection_training)
    return trial


@contextmanager
def restored(trainer: Trainer) -> Iterator[None]:
    """Gives the model, the gradient scaler and the sources of random numbers back what they had, bit for bit.

    Args:
        trainer: The trainer whose model is trained meanwhile. Not with FSDP or DeepSpeed, which split the weights.
    """
    model, scaler, device = trainer.model, trainer.accelerator.scaler, trainer.args.device
    tensors = [*(parameter for parameter in model.parameters() if parameter.requires_grad), *model.buffers()]
    values = [tensor.detach().to("cpu", copy=True) for tensor in tensors]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    attributes = _remember_attributes(model)
    scale = None if scaler is None else copy.deepcopy(scaler.state_dict())
    python, numpy = random.getstate(), np.random.get_state()
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for own, remembered in attributes:
            own.clear()
            own.update(remembered)
        if scaler is not None:
            scaler.load_state_dict(scale)
        random.setstate(python)
        np.random.set_state(numpy)
        trainer.accelerator.free_memory()  # of the trial's optimizer


def _remember_attributes(model: nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What a training changes besides weights: modes, hooks, `forward` for mixed precision, ids of special tokens."""
    owners = [vars(module) for module in model.modules()]
    owners += [hooks for module in model.modules() for hooks in (module._forward_hooks, module._forward_pre_hooks)]
    owners += [vars(getattr(model, name)) for name in ("config", "generation_config") if getattr(model, name, None)]
    return [(own, own.copy()) for own in owners]
