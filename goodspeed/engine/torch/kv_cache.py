"""The KV cache: tensors of all layers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goodspeed.errors import ConfigError


@dataclass(frozen=True)
class KVShape:
    """Shape of one token's keys and values in one layer."""

    num_kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def num_numbers(self) -> int:
        return self.num_kv_heads * (self.key_dim + self.value_dim)


class KVPool:
    """The KV cache of all layers, and one scratch space that groups gather into."""

    def __init__(
        self, shape: KVShape, num_layers: int, num_pages: int, page_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape, self.page_size, self.dtype, self.device = shape, page_size, dtype, device
        self.spare = num_pages  # one more page, for padding (`cuda_graphs.py`)
        size = (num_pages + 1, page_size, shape.num_kv_heads, shape.key_dim + shape.value_dim)
        # Zeros: masked rows are multiplied by probability 0, and 0 * nan is nan. Untouched memory is free on a CPU.
        self.pages = [_zeros(size, dtype, device) for _ in range(num_layers)]
        # [(num_pages + 1) * page_size, kv_heads, key + value]
        self.rows = [pages.flatten(0, 1) for pages in self.pages]
        self._scratch = torch.empty((0, *size[1:]), dtype=dtype, device=device)

    @property
    def is_finite(self) -> bool:
        """True if keys and values that overflow are stored as finite numbers."""
        return self.dtype == torch.float16

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Stores new rows: key and value [kv_heads, num_tokens, dim], at slots [num_tokens]."""
        new = torch.cat((key, value), dim=-1).transpose(0, 1)  # [num_tokens, kv_heads, key + value]
        if self.is_finite:
            new = new.nan_to_num_()  # an overflow must not reach the page's next session
        self.rows[layer].index_copy_(0, slots, new)

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copies rows of all layers; source and target are slots [num_rows], and may overlap."""
        for rows in self.rows:
            rows.index_copy_(0, target, rows.index_select(0, source))

    def split(self, memory: Tensor, num_chunks: int) -> tuple[Tensor, Tensor]:
        """Splits pages of the pool into views of keys and values [num_chunks, kv_heads, num_keys, dim]."""
        rows = memory.view(num_chunks, -1, *memory.shape[-2:]).transpose(1, 2)
        return rows[..., : self.shape.key_dim], rows[..., self.shape.key_dim :]

    def scratch(self, num_pages: int) -> Tensor:
        """Returns scratch space [num_pages, page_size, kv_heads, key + value], shared by all groups in turn."""
        if len(self._scratch) < num_pages:
            self._scratch = self._scratch.new_empty((num_pages, *self._scratch.shape[1:]))
        return self._scratch[:num_pages]


def staged(array: NDArray[Any], device: torch.device) -> Tensor:
    """Returns the array in pinned host memory, so that a copy to the device need not wait; on a CPU shares its memory.

    Torch reuses pinned memory only after such a copy.
    """
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory()


def sent(array: NDArray[Any], device: torch.device) -> Tensor:
    """Returns the array on the device, without waiting for the copy; on a CPU shares its memory."""
    return staged(array, device).to(device, non_blocking=True)


def bytes_per_page(shape: KVShape, num_layers: int, page_size: int, dtype: torch.dtype) -> int:
    """Returns the bytes of one page's keys and values over all layers. page_size: tokens of a page."""
    return shape.num_numbers * num_layers * page_size * dtype.itemsize


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    num_bytes = torch.Size(size).numel() * dtype.itemsize
    try:
        if device.type != "cpu":
            return torch.zeros(size, dtype=dtype, device=device)
        raw = np.zeros(num_bytes + 64, np.uint8)  # unlike torch's zeros, allocated on first use
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise ConfigError(f"{num_bytes} bytes of KV cache per layer cannot be allocated; use less memory") from error
    start = -raw.ctypes.data % 64  # aligned to cache lines
    return torch.from_numpy(raw[start : start + num_bytes]).view(dtype).view(size)
