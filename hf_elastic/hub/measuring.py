"""What a model costs, in the words of the manifest: together with the conditions of the measurement."""

import platform
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ..compression.cost import count_parameters, measure_latency
from .manifest import LatencyRecord, Parameters


def measured_parameters(model: PreTrainedModel) -> Parameters:
    """Counts the parameters of a model, by part."""
    count = count_parameters(model)
    return Parameters(embeddings=count.embeddings, encoder=count.encoder, head=count.head, total=count.total)


def measured_latency(model: PreTrainedModel, sequence_length: int) -> LatencyRecord:
    """Measures a forward pass over one sequence where the model lies now."""
    latency = measure_latency(model, sequence_length=sequence_length)
    today = datetime.now(timezone.utc).date().isoformat()
    return LatencyRecord(**asdict(latency), processor=processor_name(model.device), date=today)


def processor_name(device: torch.device) -> str:
    """Names the hardware behind a device, e.g. `"AMD EPYC 7763 64-Core Processor"`."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    information = Path("/proc/cpuinfo")  # platform.processor() says no more than "x86_64" on Linux
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
