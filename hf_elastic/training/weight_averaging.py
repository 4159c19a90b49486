"""Averages of the weights over a training, which generalize better than the last weights (EMA, SWA)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from .argument_checks import check_choice
from .stored_callback import StoredCallback

logger = logging.get_logger(__name__)

TRAINING_WEIGHTS_NAME = "training_weights.safetensors"


class WeightAveraging(StoredCallback):
    """Averages the trainable weights after each optimizer step; a step that is left out does not count again.

    The average is what is evaluated and saved, and what the model has when the training ends; the training goes on
    with weights of its own. A checkpoint therefore holds the average as the model's weights, which its metrics are of,
    and the training's own weights beside them.

    A callback cannot surround an evaluation or a checkpoint. The trainer does so with [`~WeightAveraging.applied`],
    and calls [`~WeightAveraging.save`] and [`~WeightAveraging.load`] with the folder of a checkpoint.

    Args:
        kind (`str`):
            `"ema"`: exponential moving average, which begins with the weights of the first step. `"swa"`: mean of the
            weights of each step from `start` on; what is evaluated and saved before are the training's weights.
        decay (`float`, defaults to 0.999):
            Weight of the past in `"ema"`.
        start (`float`, defaults to 0.75):
            Share of the training after which `"swa"` begins.
        progress (`Callable[[], float]`, *optional*):
            Gives the share of the training that is done after a step; by default that of its steps counts.

    Raises:
        ValueError: For an unknown kind; when a training begins whose parameters are split between processes.

    References:
        Polyak and Juditsky 1992, Acceleration of Stochastic Approximation by Averaging
        Izmailov et al. 2018, Averaging Weights Leads to Wider Optima and Better Generalization,
        https://arxiv.org/abs/1803.05407
    """

    def __init__(
        self, kind: str, decay: float = 0.999, start: float = 0.75, progress: Callable[[], float] | None = None
    ) -> None:
        check_choice("kind", kind, ("ema", "swa"))
        self.start, self.progress = 0.0 if kind == "ema" else start, progress
        self._is_left_out = False
        self._update = get_ema_multi_avg_fn(decay) if kind == "ema" else get_swa_multi_avg_fn()
        self.average: AveragedModel | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        if any(hasattr(parameter, "device_mesh") or hasattr(parameter, "ds_id") for parameter in model.parameters()):
            raise ValueError(
                "Weight averaging does not work with parameters that are split between processes, by FSDP, tensor "
                "parallelism or DeepSpeed ZeRO-3. Give weight_averaging='none'."
            )
        if state.global_step == 0:
            self.average = None

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        # Known here alone: at the end of the step the gradients are gone, and before, its progress is not made yet.
        self._is_left_out = all(weight.grad is None for weight in _trained(model).values())

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        done = state.global_step / state.max_steps if self.progress is None else self.progress()
        if self._is_left_out or done < self.start:
            return
        weights = nn.ParameterList(_trained(model).values())
        if self.average is None:
            self.average = AveragedModel(weights, multi_avg_fn=self._update)
        self.average.update_parameters(weights)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            logger.info("The model keeps the average of the best checkpoint.")
        elif self.average is None:
            logger.warning("The training ended before its weights were averaged: it keeps the last ones.")
        else:
            self._swap(model)
        self.average = None

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Gives the model the average, as far as there is one, until the block ends.

        Args:
            model (`nn.Module`):
                The model that is trained.
        """
        if self.average is None:
            yield
            return
        self._swap(model)
        try:
            yield
        finally:
            self._swap(model)

    def save(self, folder: str | Path, model: nn.Module) -> None:
        """Writes the training's own weights into a checkpoint that has the average as the model's weights.

        Args:
            folder (`str` or `Path`):
                The checkpoint.
            model (`nn.Module`):
                The model that is trained, with its own weights.
        """
        if self.average is not None:
            weights = {name: parameter.detach().contiguous() for name, parameter in _trained(model).items()}
            metadata = {"format": "pt", "n_averaged": str(int(self.average.n_averaged))}
            save_file(weights, Path(folder) / TRAINING_WEIGHTS_NAME, metadata)

    def load(self, folder: str | Path, model: nn.Module) -> None:
        """Goes on from a checkpoint, whose weights the model has: they become the average, and the model gets its own.

        Args:
            folder (`str` or `Path`):
                The checkpoint. One of a training that had not begun to average is left as it is.
            model (`nn.Module`):
                The model that is trained.

        Raises:
            ValueError: If the parameters that were trained are others.
        """
        average = AveragedModel(nn.ParameterList(_trained(model).values()), multi_avg_fn=self._update)
        number = load_training_weights(folder, model)
        average.n_averaged.fill_(number)
        self.average = average if number else None

    @torch.no_grad()
    def _swap(self, model: nn.Module) -> None:
        # In place: the optimizer, DDP and compiled code keep the tensors.
        for parameter, average in zip(_trained(model).values(), self.average.module, strict=True):
            weights = parameter.clone()
            parameter.copy_(average)
            average.copy_(weights)


def load_training_weights(folder: str | Path, model: nn.Module) -> int:
    """Gives a model the weights that a training went on with, in place of their average.

    Without them, a training that averages no longer would go on from the average, with the optimizer state of others.

    Args:
        folder (`str` or `Path`):
            A checkpoint. One of a training that had not begun to average is left as it is.
        model (`nn.Module`):
            The model that is trained.

    Returns:
        `int`: How many steps the average is of; 0 if there is none.

    Raises:
        ValueError: If the parameters that were trained are others.
    """
    path, trained = Path(folder) / TRAINING_WEIGHTS_NAME, _trained(model)
    if not path.exists():
        return 0
    with safe_open(path, framework="pt") as file, torch.no_grad():
        if different := set(file.keys()) ^ trained.keys():
            raise ValueError(
                f"{path} has the weights of another training: the first difference is {min(different)!r}. Freeze "
                "and adapt the model as it was, or train anew."
            )
        for name, parameter in trained.items():
            parameter.copy_(file.get_tensor(name))
        return int(file.metadata()["n_averaged"])


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters; a tied one once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
