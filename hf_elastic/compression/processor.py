"""The name of the hardware that a model runs on."""

import platform
from pathlib import Path

import torch


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
