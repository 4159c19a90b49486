"""Batches that grow with the memory, where the effective batch need not stay the same."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader, IterableDataset, Sampler
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import has_length

from .batch_size import AdaptMicroBatchSize


class ResizableBatchSampler(Sampler[list[int]]):
    """Endless shuffled batches of one process, whose size may change between two of them.

    The examples are one stream, epoch after epoch in a new order, and a batch may lie across two epochs. Each process
    has its own part of every batch. What was drawn is remembered by batch, so that another iteration, such as that of
    a resumed training, begins with the same batches: also those that a loader had drawn ahead when the size changed.

    Args:
        length: Number of examples.
        size: Rows of the next batch in each process; it may be set at any time, to the same in all processes.
        seed: The order depends on it and on the epoch.
        num_processes: How many processes share a batch.
        process_index: Which of them this is.

    Attributes:
        drawn (`list[list[int]]`): Index of the first batch of each size, and the size.
        num_drawn (`int`): How many batches were drawn.

    Example:
        >>> sampler = ResizableBatchSampler(length=10, size=2)
        >>> batches = iter(sampler)
        >>> first = next(batches)
        >>> sampler.size = 3
        >>> len(first), len(next(batches)), [len(batch) for batch, _ in zip(sampler, range(2))]
        (2, 3, [2, 3])
    """

    def __init__(self, length: int, size: int, seed: int = 0, num_processes: int = 1, process_index: int = 0) -> None:
        self.length, self.size, self.seed = length, size, seed
        self.num_processes, self.process_index = num_processes, process_index
        self.drawn: list[list[int]] = []
        self.num_drawn = 0

    def __iter__(self) -> Iterator[list[int]]:
        stream, batch = self._stream(), 0
        while True:
            size = self._size_of(batch)
            rows = [next(stream) for _ in range(size * self.num_processes)]
            yield rows[size * self.process_index : size * (self.process_index + 1)]
            batch += 1

    def _size_of(self, batch: int) -> int:
        if batch >= self.num_drawn:
            if not self.drawn or self.drawn[-1][1] != self.size:
                self.drawn.append([batch, self.size])
            self.num_drawn = batch + 1
        return self.drawn[bisect_right(self.drawn, batch, key=lambda first_and_size: first_and_size[0]) - 1][1]

    def _stream(self) -> Iterator[int]:
        epoch = 0
        while True:
            generator = torch.Generator().manual_seed(self.seed + epoch)
            yield from torch.randperm(self.length, generator=generator).tolist()
            epoch += 1


class AdaptBatchSize(AdaptMicroBatchSize):
    """Adapts how many rows a step has in each process: never fewer than asked for, and more as the memory allows.

    The rows that run at once follow the memory as in [`AdaptMicroBatchSize`], and a step has as many, or
    `per_device_train_batch_size` where that is more. A change takes effect behind the batches that are already drawn.

    A training then has fewer steps the more its batches grow, and ends after `max_examples` examples: its progress is
    counted in examples. The learning rate is that of the same progress in a training with batches that stay as they
    are.

    Args:
        size, failed, steps_below, begun_at:
            As [`AdaptMicroBatchSize`] takes them.
        examples (`int`, defaults to 0):
            Examples so far; a checkpoint has them.
        drawn (`list[list[int]]`, *optional*):
            What the sampler has drawn, likewise.
        num_drawn (`int`, defaults to 0):
            Likewise.
    """

    def __init__(
        self,
        size: int | None = None,
        failed: int | None = None,
        steps_below: int = 0,
        begun_at: int | None = None,
        examples: int = 0,
        drawn: list[list[int]] | None = None,
        num_drawn: int = 0,
    ) -> None:
        super().__init__(size, failed, steps_below, begun_at)
        self.examples = examples
        self._drawn, self._num_drawn = drawn or [], num_drawn
        self.sampler: ResizableBatchSampler | None = None

    def state(self) -> dict[str, Any]:
        state = super().state()
        state["args"]["examples"] = self.examples
        if self.sampler is not None:
            state["args"] |= {"drawn": self.sampler.drawn, "num_drawn": self.sampler.num_drawn}
        return state

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: DataLoader | None = None,
        **kwargs: Any,
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        sampler = train_dataloader.batch_sampler
        # Accelerate wraps it where there are several processes.
        self.sampler = sampler if isinstance(sampler, ResizableBatchSampler) else sampler.batch_sampler
        self.sampler.drawn, self.sampler.num_drawn = [list(run) for run in self._drawn], self._num_drawn
        self.sampler.size = self._batch_rows(args)

    def most_rows(self, args: TrainingArguments) -> int:
        return self.sampler.length // args.world_size

    def on_examples(self, examples: int, passes: float) -> None:
        super().on_examples(examples, passes)
        self.examples += examples

    def on_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        lr_scheduler: LRScheduler | None = None,
        **kwargs: Any,
    ) -> None:
        check_growing_schedule(lr_scheduler)
        # The scheduler counts one on in its step, which is next.
        lr_scheduler.last_epoch = self.examples / (args.train_batch_size * args.world_size) - 1

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_step_end(args, state, control, **kwargs)
        self.sampler.size = self._batch_rows(args)
        state.epoch = self.examples / self.sampler.length

    def logs(self) -> dict[str, float]:
        return {**super().logs(), "batch_size": self.sampler.size}

    def _batch_rows(self, args: TrainingArguments) -> int:
        return max(self.rule.size, args.train_batch_size)


def check_growing_data(dataset: Any) -> None:
    """Raises ValueError unless the examples of a dataset can be drawn by index, as batches that grow need them.

    Args:
        dataset: The training data, or None.
    """
    by_index = has_length(dataset) and hasattr(dataset, "__getitem__") and not isinstance(dataset, IterableDataset)
    if dataset is not None and not by_index:
        raise ValueError(
            f"keep_effective_batch=False draws examples by index, which a {type(dataset).__name__} does not give. "
            "Load the data as a whole, e.g. without streaming=True, or leave out keep_effective_batch."
        )


def check_growing_schedule(schedule: Any) -> None:
    """Raises TypeError unless a schedule depends on the progress alone: the number of steps is not known before.

    Args:
        schedule: The schedule of the learning rate.
    """
    if not isinstance(schedule, LambdaLR):
        raise TypeError(
            f"A {type(schedule).__name__} counts steps, whose number is unknown with keep_effective_batch=False. Use "
            "a lr_scheduler_type that depends on the progress alone, e.g. 'linear' or 'cosine'."
        )


def make_growing_dataloader(dataset: Any, args: TrainingArguments, accelerator: Any, **settings: Any) -> DataLoader:
    """A training loader whose batches may change their size.

    Args:
        dataset: Examples by index.
        args: Training arguments: seed, first size, processes.
        accelerator: That of the trainer.
        settings: Of the loader, e.g. `collate_fn` and `num_workers`.

    Returns:
        The loader, prepared.
    """
    seed = args.seed if args.data_seed is None else args.data_seed
    sampler = ResizableBatchSampler(len(dataset), args.train_batch_size, seed, args.world_size, args.process_index)
    loader = accelerator.prepare(DataLoader(dataset, batch_sampler=sampler, **settings))
    if loader.batch_sampler is not sampler:
        # The sampler gives each process its part itself: the wrapper that would do so again has to pass it on.
        loader.batch_sampler.num_processes, loader.batch_sampler.process_index = 1, 0
    return loader
