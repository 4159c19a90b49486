"""Going back to a checkpoint in the middle of a training, without repeating the data that led away from it."""

from pathlib import Path

from transformers import Trainer


def roll_back(trainer: Trainer, checkpoint: str | Path) -> None:
    """Restores weights, optimizer and gradient scaler from a checkpoint of the running training.

    Data, steps, learning rate and random numbers go on where they are: the step number tells [`~transformers.Trainer`]
    where in the data it is, so going back with it would run the same batches again, and the learning rate has to reach
    its end with the last step. Averaged weights go back with those of the training; what other callbacks remember is
    left alone.

    All processes have to call it together, between two optimizer steps. Not for DeepSpeed.

    Args:
        trainer: The trainer, within its training.
        checkpoint: A folder that the trainer saved with its optimizer.

    References:
        Chowdhery et al. 2022, PaLM, section 5.1, https://arxiv.org/abs/2204.02311, which restarted about 100 steps
        before a spike and left out the data around it.
    """
    checkpoint = str(checkpoint)
    groups, schedule = trainer.optimizer.param_groups, trainer.lr_scheduler.state_dict()
    rates = [group["lr"] for group in groups]
    trainer._load_from_checkpoint(checkpoint, trainer.model_wrapped if trainer.is_fsdp_enabled else None)
    trainer._load_optimizer_and_scheduler(checkpoint)
    trainer._load_scaler(checkpoint)
    trainer.lr_scheduler.load_state_dict(schedule)
    # Loading replaced the groups; some schedules compute the next rate from the present one.
    for group, rate in zip(trainer.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
