"""How much key/value memory a runner takes: bytes of a page, and pages that fit on a device."""

import os

import torch

from goodspeed.engine.attention import KVShape
from goodspeed.errors import ConfigError

CPU_FRACTION = 0.1
"""Of physical memory, by default: several nodes may share a machine, and what is never touched costs nothing."""

CUDA_FRACTION = 0.85
"""Of the memory that is free once the weights are loaded; the rest is for activations and logits."""


def bytes_per_page(shape: KVShape, num_layers: int, page_size: int, dtype: torch.dtype) -> int:
    return shape.num_numbers * num_layers * page_size * dtype.itemsize


def pages_for(page_bytes: int, device: torch.device, memory_fraction: float | None = None) -> int:
    """Pages that fit into a fraction of the device's memory (CUDA: of the free, CPU: of the physical memory)."""
    if memory_fraction is None:
        memory_fraction = CUDA_FRACTION if device.type == "cuda" else CPU_FRACTION
    if not 0 < memory_fraction <= 1:
        raise ConfigError(f"memory fraction {memory_fraction} is not above 0 and at most 1")
    return pages_in(int(available_bytes(device) * memory_fraction), page_bytes)


def pages_in(memory_bytes: int, page_bytes: int) -> int:
    """Pages that fit into that many bytes; at least one must."""
    if memory_bytes < page_bytes:
        raise ConfigError(f"{memory_bytes} bytes hold no page of {page_bytes} bytes; give the runner more memory")
    return memory_bytes // page_bytes


def available_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
