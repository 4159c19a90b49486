"""Training data of several tasks in one, and how often each of them comes.

What is distinctive: batches are of one task each, and come in turn rather than by lot: after any number of batches,
every task has had its share of them but for one or two.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset, Sampler
from transformers.trainer_pt_utils import get_length_grouped_indices

if TYPE_CHECKING:
    import datasets
    from transformers import Trainer

# The power of a task's number of rows that its share is proportional to; None is for what is given otherwise.
SAMPLINGS: dict[str, float | None] = {
    "proportional": 1.0,
    "square_root": 0.5,
    "uniform": 0.0,
    "temperature": None,
    "dynamic": None,
}


@dataclass(frozen=True)
class Mixing:
    """How often each task comes in a training on several.

    Args:
        sampling: `"proportional"` to the rows of each task, to their `"square_root"`, `"uniform"`, by `"temperature"`,
            or `"dynamic"`: proportional to how far the full model is from the best score on training rows that are
            held out.
        temperature: Of `"temperature"`: shares are proportional to the rows to the power of `1 / temperature`; 1 is
            proportional, and infinity would be uniform.
        updates: Of `"dynamic"`: how often the shares are measured anew in a training; they are uniform at first.
        references: Of `"dynamic"`: the score of a model for each task alone, which is the best to be had. Default: 1.

    Raises:
        ValueError: If a value is out of range.

    References:
        Square root: Stickland and Murray 2019, BERT and PALs, https://arxiv.org/abs/1902.02671; temperature:
        Arivazhagan et al. 2019, https://arxiv.org/abs/1907.05019; dynamic: Gottumukkala et al. 2020, Dynamic Sampling
        Strategies for Multi-Task Reading Comprehension.

    Example:
        >>> Mixing("square_root").shares({"mnli": 10000, "rte": 2500})
        {'mnli': 0.6666666666666666, 'rte': 0.3333333333333333}
    """

    sampling: str = "proportional"
    temperature: float = 2.0
    updates: int = 10
    references: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sampling not in SAMPLINGS:
            raise ValueError(f"sampling={self.sampling!r} is none of {', '.join(map(repr, SAMPLINGS))}.")
        if not self.temperature >= 1:
            raise ValueError(f"temperature={self.temperature}: give 1 (proportional) or more (towards uniform).")
        if self.updates < 1:
            raise ValueError(f"updates={self.updates}: give 1 or more.")

    def shares(self, rows: Mapping[str, int]) -> dict[str, float]:
        """Gives the part of the batches that each task has at first; they sum to 1.

        Args:
            rows: Number of training rows of each task.
        """
        power = {**SAMPLINGS, "temperature": 1 / self.temperature, "dynamic": 0.0}[self.sampling]
        return _normalized({name: number**power for name, number in rows.items()})

    def shares_by_score(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Gives each task's part of the batches by how far it is from its best score; they sum to 1.

        Args:
            scores: The score of each task.
        """
        # A task that is there keeps a tenth of what it had at first, and does not get worse unseen.
        gaps = {name: max(self.references.get(name, 1.0) - score, 0.0) for name, score in scores.items()}
        parts = _normalized(gaps) if any(gaps.values()) else dict.fromkeys(gaps, 1 / len(gaps))
        return {name: 0.9 * part + 0.1 / len(gaps) for name, part in parts.items()}


def _normalized(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value / sum(values.values()) for name, value in values.items()}


class TaskMixture(Dataset):
    """The training rows of several tasks, one task's after the other's; each row has the number of its task.

    Args:
        parts (`Mapping[str, datasets.Dataset]`):
            The tokenised rows of each task.
        mixing ([`Mixing`]):
            How often each task comes.
        scores (`Callable[[Trainer], Mapping[str, float]]`, *optional*):
            Of `"dynamic"`: gives the score of each task in the course of a training.

    Attributes:
        shares (`dict[str, float]`): The part of the batches that each task has now.

    Raises:
        ValueError: If there is only one task, or one has no rows, or `scores` is missing.
    """

    def __init__(
        self,
        parts: "Mapping[str, datasets.Dataset]",
        mixing: Mixing,
        scores: "Callable[[Trainer], Mapping[str, float]] | None" = None,
    ) -> None:
        if len(parts) < 2:
            raise ValueError(f"A mixture of {', '.join(parts) or 'nothing'}: give two tasks or more.")
        if mixing.sampling == "dynamic" and scores is None:
            raise ValueError("sampling='dynamic' needs scores, which say how far each task is.")
        self.parts, self.mixing, self.scores = dict(parts), mixing, scores
        self.firsts = [0]
        for name, part in self.parts.items():
            if not len(part):
                raise ValueError(f"{name} has no training rows: leave it out.")
            self.firsts.append(self.firsts[-1] + len(part))
        self.shares = mixing.shares({name: len(part) for name, part in parts.items()})

    def __len__(self) -> int:
        return self.firsts[-1]

    def __getitem__(self, index: int) -> dict[str, Any]:
        number = next(i for i, end in enumerate(self.firsts[1:]) if index < end)
        return {**list(self.parts.values())[number][index - self.firsts[number]], "task": number}


class MixtureSampler(Sampler[int]):
    """Gives row numbers of a mixture, so that every batch is of one task and of texts of like length.

    A task that comes more often than its rows last begins anew, in another order. One epoch has as many batches as all
    rows fill. The shares may change between two batches.

    Args:
        mixture (`TaskMixture`):
            The rows.
        batch_size (`int`):
            Rows of a batch, of all processes together.
        seed (`int`):
            Seed of the order within the tasks.
        shares (`Mapping[str, float]`, *optional*):
            The part of the batches that each task has. Default: that of the mixture, which may change.
    """

    def __init__(
        self, mixture: TaskMixture, batch_size: int, seed: int, shares: Mapping[str, float] | None = None
    ) -> None:
        self.mixture, self.batch_size, self.seed, self.epoch, self.shares = mixture, batch_size, seed, 0, shares
        self._due = [0.0] * len(mixture.parts)  # what each task lacks of its share; goes on from epoch to epoch
        self._lengths = [[_length(ids) for ids in part["input_ids"]] for part in mixture.parts.values()]

    def set_epoch(self, epoch: int) -> None:
        """Sets what the order depends on, besides the seed."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.mixture) // self.batch_size) * self.batch_size

    def __iter__(self) -> Iterator[int]:
        batches = [self._batches(number) for number in range(len(self._lengths))]
        if self.epoch == 0:
            self._due = [0.0] * len(batches)
        for _ in range(len(self) // self.batch_size):
            shares = self.mixture.shares if self.shares is None else self.shares
            self._due = [due + share for due, share in zip(self._due, shares.values(), strict=True)]
            number = self._due.index(max(self._due))
            self._due[number] -= 1
            yield from next(batches[number])

    def _batches(self, number: int) -> Iterator[Sequence[int]]:
        """Batches of one task without end."""
        generator = torch.Generator().manual_seed(zlib.crc32(f"mixture-{self.seed}-{self.epoch}-{number}".encode()))
        first, left = self.mixture.firsts[number], []
        while True:
            order = get_length_grouped_indices(self._lengths[number], self.batch_size, generator=generator)
            indices = [*left, *(first + index for index in order)]
            whole = len(indices) // self.batch_size
            for i in torch.randperm(whole, generator=generator).tolist():
                yield indices[i * self.batch_size : (i + 1) * self.batch_size]
            left = indices[whole * self.batch_size :]


def _length(ids: Sequence[Any]) -> int:
    """Tokens of an example; of its longest choice."""
    return len(ids) if isinstance(ids[0], int) else max(map(len, ids))
