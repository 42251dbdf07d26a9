"""Reads quantised linear layers in AutoAWQ's layout `gemm` (4 bits).

AWQ (Lin et al., 2024) stores qweight int32 [num_inputs, num_outputs / 8], qzeros int32 [num_groups, num_outputs / 8],
scales [num_groups, num_outputs]. The 4 bits at place i of a word belong to output ORDER[i] of the word's eight outputs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from goodspeed.engine.model_files.checkpoint_folder import weight_files
from goodspeed.errors import CheckpointError

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
PLACES = tuple(ORDER.index(output) for output in range(8))


@dataclass(frozen=True)
class LayerShape:
    """The size of a layer's weight, and of its groups of inputs."""

    num_outputs: int
    num_inputs: int
    group_size: int

    @property
    def num_groups(self) -> int:
        return self.num_inputs // self.group_size


@dataclass(frozen=True)
class Codes:
    """A weight: (codes[i, o] - zeros[g, o]) * scales[g, o] for input i of group g and output o."""

    codes: Tensor  # uint8 [num_inputs, num_outputs], 0 to 15
    zeros: Tensor  # uint8 [num_groups, num_outputs]
    scales: Tensor  # [num_groups, num_outputs], of any float type

    def dequantised(self) -> Tensor:
        """Returns the weight, float32 [num_outputs, num_inputs].

        Exact for scales of 16 bits: a product of 5 and 11 significant bits fits into float32's 24.
        """
        grouped = self.codes.float().view(len(self.zeros), -1, self.codes.shape[1])
        weight = grouped.sub_(self.zeros[:, None]).mul_(self.scales.float()[:, None]).view(self.codes.shape)
        return weight.T.contiguous()


class AwqLayers:
    """A folder's tensors, read on request, and the layers that have a tensor `qweight` or `qzeros`. Thread-safe."""

    def __init__(self, folder: Path, group_size: int) -> None:
        """folder: its files are checked already by `refuse_weights`. group_size: inputs; -1: all inputs of a layer."""
        self._group_size = group_size
        self.stored: dict[str, Any] = {}  # the file of each tensor
        for path in weight_files(folder.name, folder):
            file: Any = safe_open(path, framework="pt")
            self.stored |= dict.fromkeys(file.keys(), file)
        found = [name.rpartition(".") for name in self.stored]
        self.names = sorted({layer for layer, _, part in found if part in ("qweight", "qzeros")})

    def read(self, tensor: str) -> Tensor:
        found: Tensor = self.stored[tensor].get_tensor(tensor)
        return found

    def parts(self, name: str) -> list[str]:
        """Returns the names of the tensors that replace the layer's weight."""
        return [f"{name}.{part}" for part in ("qweight", "qzeros", "scales")]

    def shape(self, name: str) -> LayerShape:
        """Returns a layer's shape, without reading its tensors; CheckpointError if some are missing or do not match."""
        if missing := [part for part in self.parts(name) if part not in self.stored]:
            raise CheckpointError(f"{missing[0]} is missing among the quantised weights; get the checkpoint again")
        sizes = [tuple(self.stored[part].get_slice(part).get_shape()) for part in self.parts(name)]
        num_inputs, num_words = sizes[0] if len(sizes[0]) == 2 else (0, 0)
        size = num_inputs if self._group_size == -1 else self._group_size
        if not num_inputs or not num_words or num_inputs % size:
            what = f"{name} has {num_inputs} inputs, which are not whole groups of {size} (group_size in config.json)"
            raise CheckpointError(f"{what}; get the checkpoint again")
        shape = LayerShape(num_words * 8, num_inputs, size)
        if sizes[1:] != [(shape.num_groups, num_words), (shape.num_groups, shape.num_outputs)]:
            told = ", ".join(str(list(found)) for found in sizes)
            raise CheckpointError(f"{name}: the shapes {told} do not match each other; get the checkpoint again")
        return shape

    def codes(self, name: str) -> Codes:
        """Reads a layer; raises CheckpointError as `shape` does."""
        self.shape(name)
        qweight, qzeros, scales = (self.read(part) for part in self.parts(name))
        if {qweight.dtype, qzeros.dtype} != {torch.int32} or not scales.is_floating_point():
            raise CheckpointError(f"{name}: its words must be int32, its scales floats; get the checkpoint again")
        return Codes(unpack(qweight), unpack(qzeros), scales)

    def weight(self, name: str) -> Tensor:
        """Reads a layer and dequantises it: float32 [num_outputs, num_inputs]."""
        return self.codes(name).dequantised()


def unpack(words: Tensor) -> Tensor:
    """Unpacks AWQ's words, int32 [rows, columns], into their numbers, uint8 [rows, 8 * columns]."""
    octets = words.contiguous().unsqueeze(-1).view(torch.uint8)  # [*, 4], lowest byte first
    nibbles = torch.stack([octets & 15, octets >> 4], dim=-1).flatten(-2)  # [*, 8]
    return nibbles[..., torch.tensor(PLACES)].flatten(-2)
