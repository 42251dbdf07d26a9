"""A linear layer's weight in 4 bits, and the numbers that it stands for. Knows nothing about files or formats.

Source of the meaning: AWQ (Lin et al., 2024) and GPTQ (Frantar et al., 2023), whose checkpoints differ in layout only.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LayerShape:
    """The size of a layer's weight, and how its inputs are grouped."""

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
    zeros: Tensor  # uint8 [num_groups, num_outputs], 0 to 16
    scales: Tensor  # [num_groups, num_outputs], of any float type
    groups: Tensor | None = None  # int64 [num_inputs]; None where each group has inputs in a row

    def dequantised(self) -> Tensor:
        """Returns the weight, float32 [num_outputs, num_inputs].

        Exact for scales of 16 bits: a product of 5 and 11 significant bits fits into float32's 24.
        """
        if self.groups is not None:
            weight = self.codes.float().sub_(self.zeros[self.groups]).mul_(self.scales.float()[self.groups])
        else:
            grouped = self.codes.float().view(len(self.zeros), -1, self.codes.shape[1])
            weight = grouped.sub_(self.zeros[:, None]).mul_(self.scales.float()[:, None]).view(self.codes.shape)
        return weight.T.contiguous()


class CodedLayers(ABC):
    """Those layers of a checkpoint that are stored in 4 bits, in some format."""

    names: list[str]  # of modules as the checkpoint calls them

    @abstractmethod
    def shape(self, name: str) -> LayerShape:
        """Returns a layer's shape by the headers of its tensors; CheckpointError where they do not fit together."""

    @abstractmethod
    def codes(self, name: str) -> Codes:
        """Reads a layer."""

    @abstractmethod
    def parts(self, name: str) -> list[str]:
        """Returns the names of the tensors that take the place of the layer's weight."""

    def is_scattered(self, name: str) -> bool:
        """Whether the inputs of a group do not lie in a row."""
        return False

    def weight(self, name: str) -> Tensor:
        """Reads a layer and dequantises it: float32 [num_outputs, num_inputs]."""
        return self.codes(name).dequantised()


def nibbles(words: Tensor) -> Tensor:
    """Returns the eight 4-bit numbers of each 32-bit word, the lowest first: uint8 [*words.shape, 8]."""
    octets = words.contiguous().unsqueeze(-1).view(torch.uint8)  # [*, 4], the lowest first
    return torch.stack([octets & 15, octets >> 4], dim=-1).flatten(-2)
