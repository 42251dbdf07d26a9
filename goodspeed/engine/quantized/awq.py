"""AutoAWQ's layout `gemm`: eight outputs in a word, in an order of their own. Knows nothing about models.

qweight int32 [num_inputs, num_outputs / 8], qzeros int32 [num_groups, num_outputs / 8], scales [num_groups,
num_outputs]. The 4 bits at place i of a word are those of output ORDER[i] of its eight.
"""

import torch
from torch import Tensor

from goodspeed.engine.quantized.codes import CodedLayers, Codes, LayerShape, nibbles
from goodspeed.engine.quantized.config import Awq
from goodspeed.engine.quantized.stored import StoredTensors
from goodspeed.errors import CheckpointError

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
PLACES = tuple(ORDER.index(output) for output in range(8))
FLOATS = ("F16", "BF16", "F32")


class AwqLayers(CodedLayers):
    """The layers that have a tensor `qweight` or `qzeros`."""

    def __init__(self, stored: StoredTensors, scheme: Awq) -> None:
        self._stored, self._scheme = stored, scheme
        self.names = packed_names(stored)

    def parts(self, name: str) -> list[str]:
        return [f"{name}.{part}" for part in ("qweight", "qzeros", "scales")]

    def shape(self, name: str) -> LayerShape:
        qweight, qzeros, scales = self.parts(name)
        found = self._stored.shape(qweight)
        if len(found) != 2:
            raise CheckpointError(f"{qweight} has {len(found)} dimensions instead of 2; get the checkpoint again")
        shape = grouped(name, found[1] * 8, found[0], self._scheme.group_size)
        self._stored.expect(qweight, (shape.num_inputs, shape.num_outputs // 8), ("I32",))
        self._stored.expect(qzeros, (shape.num_groups, shape.num_outputs // 8), ("I32",))
        self._stored.expect(scales, (shape.num_groups, shape.num_outputs), FLOATS)
        return shape

    def codes(self, name: str) -> Codes:
        self.shape(name)  # raises
        qweight, qzeros, scales = (self._stored.read(part) for part in self.parts(name))
        return Codes(unpack(qweight), unpack(qzeros), scales)


def packed_names(stored: StoredTensors) -> list[str]:
    """Returns the layers of which there is at least a part, so that a part that is missing is told by name."""
    found = [name.rpartition(".") for name in stored.names]
    return sorted({layer for layer, _, part in found if part in ("qweight", "qzeros")})


def unpack(words: Tensor) -> Tensor:
    """Returns the numbers of packed words: uint8 [rows, 8 * columns] of int32 [rows, columns]."""
    return nibbles(words)[..., torch.tensor(PLACES)].flatten(-2)


def grouped(name: str, num_outputs: int, num_inputs: int, group_size: int | None) -> LayerShape:
    """Returns a shape; CheckpointError where the inputs do not make whole groups."""
    size = num_inputs if group_size is None else group_size
    if not num_inputs or not num_outputs or num_inputs % size:
        raise CheckpointError(
            f"{name} has {num_inputs} inputs, which are not whole groups of {size} (group_size in config.json); get "
            "the checkpoint again"
        )
    return LayerShape(num_outputs, num_inputs, size)
