"""What became of a training: how far it came, beside the arguments, which say how far it was to come."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .callbacks import find_callbacks
from .resource_callback import ResourceCallback

if TYPE_CHECKING:
    from .trainer import ElasticTrainer


@dataclass(frozen=True)
class TrainingOutcome:
    """How a training of all sizes went.

    Args:
        steps (`int`): Optimizer steps that were done.
        epochs (`float`): Passes over the training data that were done.
        ending (`str`, *optional*): What ended it before its last step: a budget, or early stopping.
        processes (`int`): How many processes trained.
        sizes (`tuple[str, ...]`): Names of the sizes, the largest first.
        teachers (`tuple[str, ...]`): Name, class and weight of each teacher.

    Example:
        >>> TrainingOutcome.of(trainer).steps
        16
    """

    steps: int
    epochs: float
    ending: str | None
    processes: int
    sizes: tuple[str, ...]
    teachers: tuple[str, ...]

    @classmethod
    def of(cls, trainer: ElasticTrainer) -> TrainingOutcome:
        """Describes the last training of a trainer.

        Args:
            trainer ([`ElasticTrainer`]): The trainer.
        """
        sizes = trainer.sampler.sizes
        endings = [callback.ending for callback in find_callbacks(trainer, ResourceCallback) if callback.ending]
        return cls(
            steps=trainer.state.global_step,
            epochs=round(trainer.state.epoch or 0.0, 2),
            ending=endings[0] if endings else None,
            processes=trainer.args.world_size,
            sizes=tuple(sorted(sizes, key=lambda name: -sizes[name])),
            teachers=tuple(f"{t.name} ({type(t.model).__name__}, weight {t.weight:g})" for t in trainer.teachers),
        )

    def to_dict(self) -> dict[str, Any]:
        """Gives plain values, for JSON."""
        return asdict(self)

    def described(self) -> dict[str, str | int | float]:
        """Gives what a card says of it, by names for readers; the sizes are in its table."""
        rows: dict[str, str | int | float] = {"steps done": self.steps, "epochs done": self.epochs}
        rows["processes"] = self.processes
        if self.ending:
            rows["ended early"] = self.ending
        if self.teachers:
            rows["teachers"] = ", ".join(self.teachers)
        return rows
