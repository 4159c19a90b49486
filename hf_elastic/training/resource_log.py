"""What a training needs of the machine, beside its losses in the log."""

import time
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments

from .memory import peak_memory, reset_peak_memory
from .processes import max_over_processes
from .resource_callback import ResourceCallback


class ResourceLog(ResourceCallback):
    """Logs memory and throughput of the steps since the last log.

    `memory_share` is the largest part of its memory that any process had in use, `examples_per_second` counts the
    examples of all processes, and `full_model_passes_per_second` the passes that they were worth: an example that a
    step runs in the full model and a size of a tenth counts 1.1.
    """

    def __init__(self) -> None:
        self._forget()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        self._device = args.device
        self._forget()
        reset_peak_memory(args.device)

    def on_examples(self, examples: int, passes: float) -> None:
        self._examples += examples
        self._passes += examples * passes

    def logs(self) -> dict[str, float]:
        seconds = time.monotonic() - self._since
        logs = {
            "memory_share": max_over_processes(peak_memory(self._device).share, self._device),
            "examples_per_second": self._examples / seconds,
            "full_model_passes_per_second": self._passes / seconds,
        }
        reset_peak_memory(self._device)
        self._forget()
        return logs

    def _forget(self) -> None:
        self._examples, self._passes, self._since = 0, 0.0, time.monotonic()
