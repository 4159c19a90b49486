"""What every size of a trained supernet predicts for a split."""

import copy
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np

from ..training.trainer import ElasticTrainer
from .encoding import EncodedSplit


def predict_sizes(
    trainer: ElasticTrainer, split: EncodedSplit, names: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Predicts a split with every size, in batches of texts of like length.

    Args:
        trainer: Of the supernet; it also gives batch size and collator.
        split: The split's examples, with labels or without.
        names: Sizes that are wanted. Default: all.

    Returns:
        The logits of all examples by size, the largest first, in the order of the split.

    Shape:
        Each `[examples, num_labels]`; `[examples, choices]` of multiple choice.
    """
    lengths = [len(ids) if np.isscalar(ids[0]) else max(map(len, ids)) for ids in split.dataset["input_ids"]]
    longest_first = np.argsort(lengths, kind="stable")[::-1]
    with _logits_alone(trainer):
        batches = trainer.get_test_dataloader(split.dataset.select(longest_first))
    sizes, logits = {name: size for name, size in trainer.sampler.sizes.items() if names is None or name in names}, {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        with trainer.elastic_model.use_subnet(trainer.subnets[name]), _logits_alone(trainer):
            output = trainer.evaluation_loop(batches, "Prediction", prediction_loss_only=False)
            # Which ends the bar.
            trainer.callback_handler.on_predict(trainer.args, trainer.state, trainer.control, output.metrics)
        found = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        logits[name] = np.empty_like(found)
        logits[name][longest_first] = found
    return logits


@contextmanager
def _logits_alone(trainer: ElasticTrainer) -> Iterator[None]:
    """Gives the logits of all rows in one array, and no metrics, which are of rows in their order."""
    former = trainer.args, trainer.compute_metrics
    trainer.args, trainer.compute_metrics = copy.copy(trainer.args), None
    trainer.args.dataloader_drop_last, trainer.args.eval_do_concat_batches = False, True
    try:
        yield
    finally:
        trainer.args, trainer.compute_metrics = former
