"""Layers in 4 bits: the dequantised layer's results up to rounding, each row by itself; no kernel that is wrong."""

import pytest
import torch

from goodspeed.engine.torch.quantized import int4_linear
from goodspeed.engine.torch.quantized.int4_linear import ROUNDING, Int4Linear, is_right
from goodspeed.engine.torch.quantized.layers import Codes, LayerShape, unpack

CPU = torch.device("cpu")


def made(shape: LayerShape, seed: int = 0) -> Codes:
    generator = torch.Generator().manual_seed(seed)
    size = (shape.num_groups, shape.num_outputs)
    numbers = torch.randint(16, (shape.num_inputs, shape.num_outputs), generator=generator, dtype=torch.uint8)
    zeros = torch.randint(17, size, generator=generator, dtype=torch.uint8)
    return Codes(numbers, zeros, torch.rand(size, generator=generator).half())


def filled(shape: LayerShape, codes: Codes, bias: torch.nn.Parameter | None = None) -> Int4Linear:
    layer = Int4Linear(shape, bias)
    layer.fill(codes, CPU)
    return layer


def test_words_by_hand():
    word = torch.tensor([[0x76543210, -1]], dtype=torch.int32)  # the lowest place first
    assert unpack(word).tolist() == [[0, 4, 1, 5, 2, 6, 3, 7] + [15] * 8]  # place 1 has output 2, place 4 output 1


@pytest.mark.parametrize("shape", [LayerShape(64, 128, 32), LayerShape(48, 256, 128), LayerShape(16, 64, 64)])
@torch.inference_mode()
def test_results_differ_by_rounding_alone(shape):
    codes = made(shape)
    bias = torch.nn.Parameter(torch.randn(shape.num_outputs).bfloat16(), requires_grad=False)
    rows = torch.randn(2, 5, shape.num_inputs, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = filled(shape, codes, bias)(rows)
    expected = rows.float() @ codes.dequantised().T + bias.float()
    assert found.dtype == torch.bfloat16
    assert found.shape == (2, 5, shape.num_outputs)
    assert (found.float() - expected).abs().max() <= ROUNDING * expected.abs().max()


@torch.inference_mode()
def test_a_row_does_not_depend_on_the_others():
    shape = LayerShape(128, 256, 64)
    layer = filled(shape, made(shape))
    rows = torch.randn(33, 256, generator=torch.Generator().manual_seed(1)).bfloat16()
    alone = torch.cat([layer(row[None]) for row in rows])
    for num_rows in (2, 7, 8, 16, 33):
        assert torch.equal(layer(rows[:num_rows]), alone[:num_rows]), num_rows


def test_a_quarter_of_the_memory():
    shape = LayerShape(256, 1024, 128)
    layer = filled(shape, made(shape))
    num_bytes = sum(buffer.numel() * buffer.element_size() for buffer in layer.buffers())
    assert num_bytes < 0.27 * 2 * 256 * 1024  # of bfloat16


def test_what_is_saved_of_a_layer_is_the_same_however_it_is_packed(monkeypatch):
    shape = LayerShape(32, 64, 32)
    codes = made(shape)
    saved = filled(shape, codes).state_dict()
    assert sorted(saved) == ["sampled", "scales_and_zeros"]
    monkeypatch.setattr(int4_linear, "_pack", lambda numbers: numbers.flip(0))
    assert all(torch.equal(saved[name], tensor) for name, tensor in filled(shape, codes).state_dict().items())
    codes.codes[-1, -1] ^= 1
    assert not torch.equal(saved["sampled"], filled(shape, codes).state_dict()["sampled"])


@pytest.mark.parametrize("shape", [LayerShape(40, 64, 32), LayerShape(64, 64, 16), LayerShape(64, 512, 512)])
def test_shapes_that_the_kernels_do_not_take(shape):
    assert not is_right(shape, CPU)


def test_kernels_that_multiply_wrong_are_left_alone(monkeypatch):
    shape = LayerShape(64, 128, 32)
    assert is_right(shape, CPU)
    pack = int4_linear._pack
    monkeypatch.setattr(int4_linear, "_pack", lambda codes: pack(codes.flip(1).contiguous()))
    assert not is_right(shape, CPU)
