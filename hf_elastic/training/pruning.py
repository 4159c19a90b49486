"""From a model to one size of it, by training that makes units vanish, and leaving out those that matter least."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..compression.checks import check_plain_weights
from ..compression.cost import count_parameters
from ..compression.extract import extract
from ..compression.importance_sizes import sizes_by_importance
from ..compression.rank import Importance, rank
from ..compression.sizes import subnet_of
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import SubnetConfig, scaled_width
from .arguments import ElasticTrainingArguments
from .distillation_arguments import DistillationArguments
from .finetuning import finetuning_arguments
from .progress import show_loss_only
from .teacher_arguments import TeacherArguments
from .trainer import ElasticTrainer

logger = logging.get_logger(__name__)

# What a model recovers from; more is better taken away in steps.
LARGEST_CUT = 1 / 3
FULL = "full"
BISECTIONS = 20


@dataclass(frozen=True)
class PruningRun:
    """What pruning gives.

    Args:
        model ([`ElasticPreTrainedModel`]): The pruned model, of one size.
        subnets (`tuple[SubnetConfig, ...]`): What each round kept of what the former had left.
        encoder_parameters (`tuple[int, ...]`): Parameters of the encoder, before and after each round.
    """

    model: ElasticPreTrainedModel
    subnets: tuple[SubnetConfig, ...]
    encoder_parameters: tuple[int, ...]


def prune(
    model: ElasticPreTrainedModel,
    args: ElasticTrainingArguments,
    train_dataset: Dataset,
    target: float,
    processing_class: PreTrainedTokenizerBase | None = None,
    data_collator: Callable[[list[Any]], dict[str, Any]] | None = None,
    recovery_epochs: float = 1.0,
    rank_examples: int = 256,
    **trainer_arguments: Any,
) -> PruningRun:
    """Prunes heads and neurons to a single size, in rounds that take away a third of the encoder at most.

    Each round trains with a group lasso ([`GroupLasso`]), ranks the units, and cuts out the size that keeps the most
    important ones of all layers together. After the last, training goes on without the lasso.

    Args:
        model ([`ElasticPreTrainedModel`]):
            A model with a head, fine-tuned already. It is left as it is.
        args ([`ElasticTrainingArguments`]):
            How a round trains: `num_train_epochs` and `group_penalty` are those of one round. As in the fine-tuning of
            a family ([`finetuning_arguments`]), nothing is evaluated or saved.
        train_dataset (`Dataset`):
            Training data with labels. Units are ranked by a part of it.
        target (`float`):
            Part of the encoder's parameters that may be left, in (0, 1).
        processing_class, data_collator:
            As [`~transformers.Trainer`] takes them.
        recovery_epochs (`float`, defaults to 1):
            Epochs without the lasso at the end.
        rank_examples (`int`, defaults to 256):
            Training examples to rank the units by, rounded up to whole batches.
        **trainer_arguments:
            Other arguments of [`ElasticTrainer`], such as `teachers`: the model before it is pruned is a good one.

    Returns:
        [`PruningRun`]: The pruned model.

    Raises:
        TypeError: If the model is not elastic, or its weights are adapted or quantized.
        ValueError: If a value is out of range, or less is to be left than one head and 32 neurons in each layer.

    References:
        Wen et al. 2016, Learning Structured Sparsity in Deep Neural Networks (https://arxiv.org/abs/1608.03665); in
        rounds: Han et al. 2015, Learning both Weights and Connections (https://arxiv.org/abs/1506.02626)
    """
    check_plain_weights(model)
    _check(args, target, recovery_epochs, rank_examples)
    counts = [count_parameters(model).encoder]
    _check_target(model, target, counts[0])
    kept = [
        "group_penalty",
        *(known.name for group in (DistillationArguments, TeacherArguments) for known in fields(group)),
    ]
    rounds = math.ceil(math.log(target) / math.log(1 - LARGEST_CUT))
    one_round = finetuning_arguments(
        args, args.num_train_epochs, kept if trainer_arguments.get("teachers") else kept[:1]
    )
    data = {"train_dataset": train_dataset, "processing_class": processing_class, "data_collator": data_collator}
    model, subnets = extract(model, None), []
    for number in range(1, rounds + 1):
        trainer = _train(model, one_round, f"Round {number} of {rounds}", **data, **trainer_arguments)
        batches = math.ceil(rank_examples / args.train_batch_size)
        importance = rank(model, trainer.get_ranking_dataloader(), max_batches=batches)
        subnets.append(_largest_within(model, importance, counts[0] * target ** (number / rounds)))
        model = extract(model, subnets[-1])
        counts.append(count_parameters(model).encoder)
        logger.info(f"Round {number}: {counts[-1] / counts[0]:.1%} of the encoder's parameters are left.")
    if recovery_epochs:
        recovery = replace(one_round, group_penalty=0.0, num_train_epochs=recovery_epochs)
        _train(model, recovery, "Recovery", **data, **trainer_arguments)
    model.config.subnets = {}
    return PruningRun(model, tuple(subnets), tuple(counts))


def _check(args: ElasticTrainingArguments, target: float, recovery_epochs: float, rank_examples: int) -> None:
    if isinstance(target, bool) or not isinstance(target, float) or not 0 < target < 1:
        raise ValueError(f"target={target!r} must lie in (0, 1): it is the part of the encoder that may be left.")
    if not args.group_penalty:
        raise ValueError(
            "group_penalty=0: pruning needs a group lasso, e.g. ElasticTrainingArguments(..., group_penalty=0.01)."
        )
    for name, value, smallest in (("recovery_epochs", recovery_epochs, 0), ("rank_examples", rank_examples, 1)):
        if not smallest <= value < math.inf:
            raise ValueError(f"{name}={value} must be at least {smallest}, and finite.")


def _check_target(model: ElasticPreTrainedModel, target: float, count: int) -> None:
    smallest = SubnetConfig(
        num_attention_heads=1,
        intermediate_size=[scaled_width(1e-9, size.intermediate_size) for size in model.config.layer_sizes()],
    )
    least = count_parameters(model, smallest).encoder / count
    if target < least:
        raise ValueError(
            f"target={target}: with one head and 32 neurons in each layer, {least:.3f} of the encoder is left. Give "
            "as much, or extract a size of fewer layers first."
        )


def _train(
    model: ElasticPreTrainedModel, args: ElasticTrainingArguments, title: str, **keywords: Any
) -> ElasticTrainer:
    model.config.subnets = {FULL: SubnetConfig()}
    trainer = ElasticTrainer(model, args, **keywords)
    show_loss_only(trainer, title)
    trainer.train()
    return trainer


def _largest_within(model: ElasticPreTrainedModel, importance: Importance, limit: float) -> SubnetConfig:
    """Finds the size of the most important units that has no more parameters in its encoder than a limit."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        share = (low + high) / 2
        within = count_parameters(model, _size(model, importance, share)).encoder <= limit
        low, high = (share, high) if within else (low, share)
    return _size(model, importance, low)


def _size(model: ElasticPreTrainedModel, importance: Importance, share: float) -> SubnetConfig:
    full = model.config.layer_sizes()
    sizes = [
        size._replace(
            intermediate_size=scaled_width(size.intermediate_size / whole.intermediate_size, whole.intermediate_size)
        )
        for size, whole in zip(sizes_by_importance(model.config, importance, share), full, strict=True)
    ]
    return subnet_of(sizes, model.config)
