"""AutoGPTQ's layout: eight inputs in a word, and optionally the group of each input. Knows nothing about models.

qweight int32 [num_inputs / 8, num_outputs], qzeros int32 [num_groups, num_outputs / 8], scales [num_groups,
num_outputs], g_idx int32 [num_inputs]. The older of the two formats (`gptq`) stores zeros that are one less than meant.
"""

import torch
from torch import Tensor

from goodspeed.engine.quantized.awq import FLOATS, grouped, packed_names
from goodspeed.engine.quantized.codes import CodedLayers, Codes, LayerShape, nibbles
from goodspeed.engine.quantized.config import Gptq
from goodspeed.engine.quantized.stored import StoredTensors
from goodspeed.errors import CheckpointError, UnsupportedModelError


class GptqLayers(CodedLayers):
    """The layers that have a tensor `qweight` or `qzeros`."""

    def __init__(self, stored: StoredTensors, scheme: Gptq) -> None:
        self._stored, self._scheme = stored, scheme
        self.names = packed_names(stored)

    def parts(self, name: str) -> list[str]:
        always = [f"{name}.{part}" for part in ("qweight", "qzeros", "scales")]
        return always + [part for part in (f"{name}.g_idx",) if part in self._stored]

    def shape(self, name: str) -> LayerShape:
        qweight, qzeros, scales, *indexes = self.parts(name)
        found = self._stored.shape(qweight)
        if len(found) != 2:
            raise CheckpointError(f"{qweight} has {len(found)} dimensions instead of 2; get the checkpoint again")
        shape = grouped(name, found[1], found[0] * 8, self._scheme.group_size)
        self._stored.expect(qweight, (shape.num_inputs // 8, shape.num_outputs), ("I32",))
        self._stored.expect(qzeros, (shape.num_groups, shape.num_outputs // 8), ("I32",))
        self._stored.expect(scales, (shape.num_groups, shape.num_outputs), FLOATS)
        for index in indexes:
            self._stored.expect(index, (shape.num_inputs,), ("I32",))
        return shape

    def codes(self, name: str) -> Codes:
        shape = self.shape(name)  # raises
        qweight, qzeros, scales, *indexes = (self._stored.read(part) for part in self.parts(name))
        groups = self._groups(name, shape, indexes[0]) if indexes else None
        return Codes(unpack_inputs(qweight), self._zeros(name, qzeros), scales, groups)

    def is_scattered(self, name: str) -> bool:
        index = f"{name}.g_idx"
        return index in self._stored and self._groups(name, self.shape(name), self._stored.read(index)) is not None

    def _zeros(self, name: str, qzeros: Tensor) -> Tensor:
        zeros = nibbles(qzeros).flatten(-2)
        if not self._scheme.zeros_less_one:
            return zeros
        if int(zeros.max()) == 15:
            raise UnsupportedModelError(
                f"{name}: a stored zero is 15, which releases of AutoGPTQ read as 16 or as 0; use a checkpoint of "
                "checkpoint_format gptq_v2, or the plain one"
            )
        return zeros + 1

    def _groups(self, name: str, shape: LayerShape, index: Tensor) -> Tensor | None:
        """Returns the group of each input; None where groups have inputs in a row (without act-order)."""
        if torch.equal(index.long(), torch.arange(shape.num_inputs) // shape.group_size):
            return None
        if int(index.min()) < 0 or int(index.max()) >= shape.num_groups:
            raise CheckpointError(f"{name}.g_idx names groups that do not exist; get the checkpoint again")
        return index.long()


def unpack_inputs(words: Tensor) -> Tensor:
    """Returns the numbers of packed words: uint8 [8 * rows, columns] of int32 [rows, columns]."""
    return nibbles(words).transpose(1, 2).reshape(-1, words.shape[1])
