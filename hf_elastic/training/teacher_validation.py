"""How much each teacher counts, by how well it does on the evaluation data: measured once, and kept by checkpoints."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.utils import ModelOutput, logging

from .distillation import logits_of, token_mask
from .teacher_mixing import label_losses, prediction_kind, validation_weights
from .teachers import TARGETS, Batch, Teacher, observe

logger = logging.get_logger(__name__)


class TeacherWeights(TrainerCallback, ExportableState):
    """Keeps the weights of the teachers with the checkpoints, so that a resumed training has the same ones.

    A training that is not resumed begins without weights: it may have other evaluation data than the one before.

    Args:
        weights (`dict[str, float]`, *optional*):
            Weight of each teacher by its name; None until they are measured.
    """

    def __init__(self, weights: dict[str, float] | None = None) -> None:
        self.weights = weights

    def state(self) -> dict[str, Any]:
        return {"args": {"weights": self.weights}, "attributes": {}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # Here as well, since `restore_callback_states_from_checkpoint` is off by default, and other weights would be
        # another training.
        stored = state.stateful_callbacks.setdefault(type(self).__name__, TeacherWeights().state())
        self.weights = stored["args"]["weights"] if state.global_step else None

    def measure(
        self,
        teachers: Sequence[Teacher],
        batches: Iterable[Batch],
        accelerator: Accelerator,
        problem_type: str | None = None,
    ) -> None:
        """Weighs teachers by [`measure_teachers`], which takes the same arguments."""
        self.weights = weigh_by_validation(teachers, measure_teachers(teachers, batches, accelerator, problem_type))
        logger.info(f"Weights of the teachers by the evaluation data: {self.weights}")

    def of(self, teachers: Sequence[Teacher]) -> list[float]:
        """The weights of teachers, in their order.

        Raises:
            ValueError: If they are those of other teachers.
        """
        names = [teacher.name for teacher in teachers]
        if list(self.weights) != names:
            raise ValueError(
                f"The checkpoint has weights for the teachers {', '.join(self.weights)}, and those given are "
                f"{', '.join(names)}. Resume with the same teachers, in the same order."
            )
        return [self.weights[name] for name in names]


def measure_teachers(
    teachers: Sequence[Teacher], batches: Iterable[Batch], accelerator: Accelerator, problem_type: str | None = None
) -> dict[str, float]:
    """The mean loss of each teacher on data with labels, the same on every process.

    Args:
        teachers: The teachers, frozen and on the device of the batches.
        batches: What the trainer's evaluation reads, e.g. `trainer.get_eval_dataloader()`.
        accelerator: Gathers from all processes.
        problem_type: The student's `config.problem_type`.

    Returns:
        Loss by the teacher's name: per example, or per labelled token.

    Raises:
        ValueError: If the data have no labels.
    """
    totals = torch.zeros(len(teachers), 2, dtype=torch.float64)
    silent = not accelerator.is_local_main_process
    for batch in tqdm(batches, desc="Evaluating teachers", unit="batch", disable=silent):
        sums = torch.stack([_sums_by_example(observe(each, batch), batch, problem_type) for each in teachers], dim=1)
        # Leaves out the examples that were repeated to give every process as many.
        totals += accelerator.gather_for_metrics(sums).sum(dim=0).cpu()
    losses, counts = totals.unbind(dim=1)
    if not counts.all():
        raise ValueError(
            'eval_dataset has no labels, by which teacher_mixing="validation" measures teachers. Give an eval_dataset '
            'with labels, or teacher_mixing="weights".'
        )
    return {teacher.name: loss for teacher, loss in zip(teachers, (losses / counts).tolist(), strict=True)}


def weigh_by_validation(teachers: Sequence[Teacher], losses: dict[str, float]) -> dict[str, float]:
    """The weights of teachers by name, from [`measure_teachers`]' losses."""
    weights = validation_weights([each.weight for each in teachers], [losses[each.name] for each in teachers])
    return {each.name: weight for each, weight in zip(teachers, weights, strict=True)}


def _sums_by_example(outputs: ModelOutput, batch: Batch, problem_type: str | None) -> Tensor:
    """The sum of the losses of each example, and the number of its labels: `[examples, 2]`."""
    mask = token_mask(batch)
    targets = [batch[name] for name in TARGETS if name in batch]
    if not targets:
        return torch.zeros(len(mask), 2, device=mask.device)
    spans = "start_logits" in outputs
    sums = []
    for logits, labels in zip(logits_of(outputs), targets, strict=True):
        kind = "classes" if spans else prediction_kind(logits, labels, problem_type)
        losses, known = label_losses(logits, labels, kind, mask if spans else None)
        sums.append(torch.stack([losses, known.to(losses.dtype)], dim=-1).reshape(len(losses), -1, 2).sum(dim=1))
    return torch.stack(sums).sum(dim=0)
