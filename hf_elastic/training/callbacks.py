"""The callbacks that training arguments ask for."""

from collections.abc import Callable, Collection
from typing import TypeVar

from transformers import Trainer, TrainerCallback

from .arguments import ElasticTrainingArguments
from .batch_size import AdaptMicroBatchSize
from .budget import TrainingBudget
from .clipping import PercentileClipping
from .early_stopping import CostAwareEarlyStopping
from .group_lasso import GroupLasso
from .growing_batches import AdaptBatchSize
from .loss_guard import LossGuard
from .resource_log import ResourceLog
from .subnet_number import AdaptSubnetNumber
from .subnet_weights import RunningLosses
from .teacher_validation import TeacherWeights
from .weight_averaging import WeightAveraging

Kind = TypeVar("Kind", bound=TrainerCallback)


def callbacks_for(
    args: ElasticTrainingArguments, progress: Callable[[], float] | None = None
) -> list[TrainerCallback]:
    """Makes the callbacks of the mechanisms that are switched on.

    Args:
        args: The training arguments.
        progress: Gives the share of the training that is done; by default that of its steps counts.
    """
    averaging = (args.weight_averaging, args.ema_decay, args.swa_start, progress)
    has_budget = args.max_minutes is not None or args.max_examples is not None
    wanted: list[tuple[bool, type[TrainerCallback], tuple]] = [
        (args.on_bad_step != "ignore", LossGuard, ()),  # first, before others take in a bad step
        (args.teacher_mixing == "validation", TeacherWeights, ()),
        (args.subnet_weighting == "by_loss", RunningLosses, ()),
        (args.group_penalty > 0, GroupLasso, (args.group_penalty,)),
        (args.adapt_micro_batch_size, AdaptMicroBatchSize if args.keep_effective_batch else AdaptBatchSize, ()),
        (args.adapt_num_random_subnets, AdaptSubnetNumber, ()),
        (args.log_resources, ResourceLog, ()),
        (has_budget, TrainingBudget, ()),
        (args.early_stopping_min_gain is not None, CostAwareEarlyStopping, ()),
        (args.percentile_clipping > 0, PercentileClipping, ()),
        (args.weight_averaging != "none", WeightAveraging, averaging),
    ]
    return [kind(*settings) for is_wanted, kind, settings in wanted if is_wanted]


def find_callback(trainer: Trainer, kind: type[Kind]) -> Kind | None:
    """Gives the callback of a class that a trainer has now, or None.

    A resumed training makes those that have a state anew, so that references to them do not last.

    Args:
        trainer: The trainer.
        kind: The class.
    """
    return next(iter(find_callbacks(trainer, kind)), None)


def find_callbacks(trainer: Trainer, kind: type[Kind]) -> list[Kind]:
    """Gives all callbacks of a class that a trainer has now.

    Args:
        trainer: The trainer.
        kind: The class.
    """
    return [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, kind)]


def replace_callbacks(trainer: Trainer, kinds: Collection[type[TrainerCallback]], new: list[TrainerCallback]) -> None:
    """Puts callbacks where a trainer has those of some classes, or behind all others where it has none.

    Args:
        trainer: The trainer.
        kinds: The classes of those that are taken out.
        new: What takes their place.
    """
    callbacks = trainer.callback_handler.callbacks
    place = next((i for i, callback in enumerate(callbacks) if type(callback) in kinds), len(callbacks))
    before, after = callbacks[:place], [each for each in callbacks[place:] if type(each) not in kinds]
    trainer.callback_handler.callbacks = [*before, *new, *after]
