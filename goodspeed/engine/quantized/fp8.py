"""Weights of 8-bit floating-point numbers with a scale for each block, as DeepSeek's and Qwen's fp8 checkpoints have.

weight float8_e4m3fn [num_outputs, num_inputs], weight_scale_inv [block rows, block columns], by which it is multiplied.
Knows nothing about models. Activations are not quantised here: what is computed is nearer to the plain model.
"""

from torch import Tensor

from goodspeed.engine.quantized.awq import FLOATS
from goodspeed.engine.quantized.codes import LayerShape
from goodspeed.engine.quantized.config import Fp8
from goodspeed.engine.quantized.stored import StoredTensors
from goodspeed.errors import CheckpointError

SCALE = ".weight_scale_inv"
UNUSED = (".activation_scale", ".input_scale")
"""Scales of activations, which are not quantised here."""


class Fp8Layers:
    """The layers whose weight has scales."""

    def __init__(self, stored: StoredTensors, scheme: Fp8) -> None:
        self._stored, self._scheme = stored, scheme
        self.names = [name.removesuffix(SCALE) for name in stored.names if name.endswith(SCALE)]
        known = {f"{name}.weight" for name in self.names}
        for name in stored.names:
            if stored.dtype(name).startswith("F8") and name not in known:
                raise CheckpointError(f"{name} has 8 bits and no scales ({SCALE[1:]}); get the checkpoint again")

    def parts(self, name: str) -> list[str]:
        unused = [name + suffix for suffix in UNUSED]
        return [f"{name}.weight", name + SCALE, *(part for part in unused if part in self._stored)]

    def shape(self, name: str) -> LayerShape:
        """Returns a layer's shape by the headers of its tensors; CheckpointError where they do not fit together."""
        weight, scale = f"{name}.weight", name + SCALE
        shape = self._stored.shape(weight)
        if len(shape) != 2:
            raise CheckpointError(f"{weight} has {len(shape)} dimensions instead of 2; get the checkpoint again")
        self._stored.expect(weight, shape, ("F8_E4M3",))
        if self._scheme.block is None:
            blocks = self._stored.shape(scale) if self._stored.shape(scale) == (1,) else ()
        else:
            blocks = tuple(-(-size // block) for size, block in zip(shape, self._scheme.block, strict=True))
        self._stored.expect(scale, blocks, FLOATS)
        return LayerShape(*shape, group_size=shape[1])

    def weight(self, name: str) -> Tensor:
        """Reads a layer and dequantises it: float32 [num_outputs, num_inputs]."""
        shape = self.shape(name)
        scales = self._stored.read(name + SCALE).float()
        if self._scheme.block is not None:
            sizes = (shape.num_outputs, shape.num_inputs)
            for dim, block in enumerate(self._scheme.block):
                scales = scales.repeat_interleave(block, dim=dim).narrow(dim, 0, sizes[dim])
        return self._stored.read(f"{name}.weight").float().mul_(scales)
