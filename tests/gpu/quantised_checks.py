"""Layers in 4 bits on a device beside the dequantised layer on the CPU."""

import torch

from goodspeed.engine.torch.quantized.int4_linear import ROUNDING, Int4Linear, is_right
from goodspeed.engine.torch.quantized.layers import Codes, LayerShape

SHAPES = [LayerShape(256, 512, 128), LayerShape(1024, 256, 64), LayerShape(512, 1024, 32)]


@torch.inference_mode()
def int4_layers_multiply_like_dequantised_ones(device: torch.device) -> str:
    """Also tells by how much a row's result depends on the rows beside it, which is nothing on a CPU."""
    worst, apart = 0.0, 0.0
    for shape in SHAPES:
        assert is_right(shape, device), f"the kernels fail their trial with {shape}, so such layers are dequantised"
        layer, codes = Int4Linear(shape), made(shape)
        layer.fill(codes, device)
        rows = torch.randn(33, shape.num_inputs, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
        expected = rows.float() @ codes.dequantised().T
        found = layer(rows.to(device)).float().cpu()
        alone = torch.cat([layer(row[None].to(device)).float().cpu() for row in rows])
        largest = expected.abs().max()
        worst = max(worst, float((found - expected).abs().max() / largest))
        apart = max(apart, float((found - alone).abs().max() / largest))
    assert worst <= ROUNDING, f"a result differs by {worst:.3g} of the largest, more than {ROUNDING}"
    assert apart <= ROUNDING, f"a row alone differs by {apart:.3g} of the largest, more than {ROUNDING}"
    return f"largest difference {worst:.2g} of the largest result, of rows alone {apart:.2g}"


def made(shape: LayerShape) -> Codes:
    generator = torch.Generator().manual_seed(0)
    size = (shape.num_groups, shape.num_outputs)
    numbers = torch.randint(16, (shape.num_inputs, shape.num_outputs), generator=generator, dtype=torch.uint8)
    zeros = torch.randint(16, size, generator=generator, dtype=torch.uint8)
    return Codes(numbers, zeros, torch.rand(size, generator=generator).half())
