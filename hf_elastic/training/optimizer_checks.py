"""What can be told of the optimizer and of the schedule of a training before it makes them."""

import torch
from torch.optim.lr_scheduler import LRScheduler
from transformers import Trainer, get_scheduler

# Arguments that are read where the trainer makes the optimizer, and what they are where they change nothing.
_OF_OWN_OPTIMIZER = {"layer_lr_decay": 1, "head_lr_multiplier": 1, "scale_lr_with_batch": False}


def check_given_optimizer(trainer: Trainer) -> None:
    """Raises ValueError if an argument is for the optimizer that the trainer would make, but another one is given.

    Args:
        trainer: The trainer, before it makes its optimizer.
    """
    given = _given_optimizer(trainer)
    for name, neutral in _OF_OWN_OPTIMIZER.items() if given is not None else ():
        value = getattr(trainer.args, name)
        if value != neutral:
            raise ValueError(
                f"{name}={value} has no effect on {given}, whose learning rates are its own. Give {neutral}, and set "
                "the learning rates there; or choose an optimizer by optim."
            )


def _given_optimizer(trainer: Trainer) -> str | None:
    if trainer.optimizer is not None:
        return "the optimizer in optimizers"
    if trainer.optimizer_cls_and_kwargs is not None:
        return "optimizer_cls_and_kwargs"
    if trainer.is_deepspeed_enabled and "optimizer" in trainer.accelerator.state.deepspeed_plugin.deepspeed_config:
        return "the optimizer in the configuration of DeepSpeed"
    return None


def planned_schedule(trainer: Trainer) -> LRScheduler:
    """The schedule that is given, or one of the kind that the trainer will make, of a parameter that nobody has.

    Args:
        trainer: The trainer, before it makes its optimizer.
    """
    args = trainer.args
    if trainer.lr_scheduler is not None:
        return trainer.lr_scheduler
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=args.learning_rate)
    steps = max(args.max_steps, 1)  # it may not be known yet
    return get_scheduler(
        args.lr_scheduler_type, optimizer, args.get_warmup_steps(steps), steps, args.lr_scheduler_kwargs
    )
