"""A cheap score of a size: how far its predictions are from those of the full model, on a few fixed rows."""

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from functools import cached_property

import torch
from torch import Tensor

from ..compression.checks import check_elastic, check_max_batches, model_inputs
from ..compression.evaluation_mode import evaluation_mode
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from .distillation import UnitCounts, logits_of, prediction_loss

# Not needed for predictions.
LABELS = ("labels", "start_positions", "end_positions")


class DistillationProxy:
    """Scores the size that is active in a model by its distillation loss; less is better. For [`search`].

    It sees the labels only to know which tokens have one, and is much less noisy than a metric on as many rows. The
    loss is that of the training: the divergence of classes, the squared difference of a regression.

    Args:
        model ([`ElasticPreTrainedModel`]):
            The trained supernet with its head; what its full model predicts is kept from the first call on.
        dataloader (`Iterable[Mapping[str, Tensor]]`):
            Batches **of the training data**; what is reported has to be of other rows.
        max_batches (`int`, *optional*):
            Number of batches to use. All by default; a few hundred rows are usually enough.
        temperature (`float`, defaults to 1.0):
            Divides the logits of both sides.

    Attributes:
        fingerprint (`str`): Tells rows from others, so that kept scores are not taken for those of other rows.

    Raises:
        TypeError: If the model is not elastic, or has no head.
        ValueError: If there is no batch.

    Example:
        >>> proxy = DistillationProxy(model, trainer.get_train_dataloader(), max_batches=16)
        >>> with model.use_subnet("small"):
        ...     proxy(model)
    """

    def __init__(
        self,
        model: ElasticPreTrainedModel,
        dataloader: Iterable[Mapping[str, Tensor]],
        max_batches: int | None = None,
        temperature: float = 1.0,
    ):
        check_elastic(model)
        check_max_batches(max_batches)
        if model.base_model is model:
            raise TypeError(f"A {type(model).__name__} has no head, and so no predictions: load it with one.")
        self.temperature, self.problem_type = temperature, model.config.problem_type
        batches = itertools.islice(dataloader, max_batches)
        self.batches = [model_inputs(batch, model.device) for batch in batches]
        if not self.batches:
            raise ValueError("The dataloader gives no batch: a proxy needs training rows.")
        counts = [UnitCounts.of(batch, self.problem_type) for batch in self.batches]
        self.counts = UnitCounts(*(torch.stack(numbers).sum() for numbers in zip(*counts, strict=True)))
        self.fingerprint = self._fingerprint()
        self.model = model

    @cached_property
    def targets(self) -> list[tuple[Tensor, ...]]:
        """What the full model predicts, from the first call on."""
        with evaluation_mode(self.model), self.model.use_subnet(None):
            return [_predict(self.model, batch) for batch in self.batches]

    @torch.inference_mode()
    def __call__(self, model: ElasticPreTrainedModel) -> float:
        """Gives the mean loss of the active size."""
        losses = [
            prediction_loss(_predict(model, batch), target, batch, self.counts, self.temperature, self.problem_type)
            for batch, target in zip(self.batches, self.targets, strict=True)
        ]
        return torch.stack(losses).sum().item()

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(str(self.temperature).encode())
        for batch in self.batches:
            for name, value in sorted(batch.items()):
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()[:16]


@torch.inference_mode()
def _predict(model: ElasticPreTrainedModel, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    return logits_of(model(**{name: value for name, value in batch.items() if name not in LABELS}))
