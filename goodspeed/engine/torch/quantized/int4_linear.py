"""Linear layers with weights in 4 bits, multiplied with bfloat16 rows by torch's kernels.

A weight takes 4 bits instead of 16, plus a scale and a zero per group, so a round reads less memory. The kernels
hold scales and zeros in bfloat16, so results differ from the dequantised layer's by rounding, about as much as bfloat16
itself does. Each row's result is independent of the others.
"""

import torch
from torch import Tensor, nn

from goodspeed.engine.torch.fingerprint import sampled
from goodspeed.engine.torch.quantized.layers import Codes, LayerShape

ROUNDING = 1 / 64
"""Largest difference from the dequantised layer that counts as rounding, relative to the largest result (seen on a CPU:
at most 0.005; plain bfloat16: 0.004; a wrong order of numbers: about 1)."""

GROUP_SIZES = (32, 64, 128, 256)
"""Group sizes that the kernels accept, by torch's own checks."""

TILES = (8, 4, 2)
"""Numbers of tiles (16 inputs each) that CUDA's layout combines; the largest that divides the inputs is used."""

BLOCK = 256
"""Outputs packed at a time on a CPU, to save memory; a multiple of the number that the CPU's layout combines."""


class Int4Linear(nn.Module):
    """Replaces an `nn.Linear`; has no weight before `fill`. A bias is an ordinary parameter."""

    packed: Tensor | None
    scales_and_zeros: Tensor | None  # bfloat16 [num_groups, num_outputs, 2]
    sampled: Tensor | None  # uint8, for the fingerprint: the packed layout differs between devices

    def __init__(self, shape: LayerShape, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features, self.group_size = shape.num_inputs, shape.num_outputs, shape.group_size
        self.bias = bias
        self.register_buffer("packed", None, persistent=False)
        self.register_buffer("scales_and_zeros", None)
        self.register_buffer("sampled", None)

    @torch.no_grad()
    def fill(self, codes: Codes, device: torch.device) -> None:
        """Packs a weight for a device; the layer cannot move to another device afterwards."""
        self.sampled = sampled(codes.codes).to(device)
        scales = codes.scales.to(torch.bfloat16)
        zeros = (8.0 - codes.zeros.float()) * scales.float()  # the kernels compute (code - 8) * scale + zero
        self.scales_and_zeros = torch.stack([scales, zeros.to(torch.bfloat16)], dim=-1).contiguous().to(device)
        self.packed = _pack(codes.codes.T.contiguous().to(device))

    def forward(self, input: Tensor) -> Tensor:
        rows = input.reshape(-1, self.in_features).contiguous()
        kernels = torch.ops.aten
        multiply = kernels._weight_int4pack_mm_for_cpu if rows.is_cpu else kernels._weight_int4pack_mm
        out: Tensor = multiply(rows, self.packed, self.group_size, self.scales_and_zeros)
        if self.bias is not None:
            out = out + self.bias
        return out.view(*input.shape[:-1], self.out_features)


def _pack(codes: Tensor) -> Tensor:
    """Packs codes, uint8 [num_outputs, num_inputs], into the layout of their device's kernel."""
    if codes.device.type == "cpu":
        pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu  # takes 32 bits for each number
        return torch.cat([pack(block.int(), 2) for block in torch.split(codes, BLOCK)])
    tiles = next(tiles for tiles in TILES if codes.shape[1] % (16 * tiles) == 0)
    on_gpu: Tensor = torch.ops.aten._convert_weight_to_int4pack(codes[:, ::2] << 4 | codes[:, 1::2], tiles)
    return on_gpu


@torch.inference_mode()
def is_right(shape: LayerShape, device: torch.device) -> bool:
    """True if this device's kernels multiply a weight of this shape correctly, tested with random numbers."""
    if shape.group_size not in GROUP_SIZES:
        return False
    generator = torch.Generator().manual_seed(0)
    size = (shape.num_groups, shape.num_outputs)
    codes = Codes(
        torch.randint(16, (shape.num_inputs, shape.num_outputs), generator=generator, dtype=torch.uint8),
        torch.randint(16, size, generator=generator, dtype=torch.uint8),
        torch.rand(size, generator=generator).half() + 0.5,
    )
    rows = torch.randn((3, shape.num_inputs), generator=generator).to(torch.bfloat16)
    expected = rows.float() @ codes.dequantised().T
    layer = Int4Linear(shape)
    try:
        layer.fill(codes, device)
        found = layer(rows.to(device)).float().cpu()
    except (RuntimeError, AttributeError, StopIteration):  # no such shape on this device; no such kernel in this torch
        return False
    return bool((found - expected).abs().max() <= ROUNDING * expected.abs().max())
