"""Packed words and the numbers in them: a few by hand, then any."""

import pytest
import torch

from goodspeed.engine.torch.quantized.layers import Codes, unpack
from tests.engine.torch.quantized.making import meant


def test_by_hand():
    word = torch.tensor([[0x76543210, -1]], dtype=torch.int32)  # the lowest place first
    assert unpack(word).tolist() == [[0, 4, 1, 5, 2, 6, 3, 7] + [15] * 8]  # place 1 has output 2, place 4 output 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dequantised_numbers_are_exact(dtype):
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(16, (32, 6), generator=generator, dtype=torch.uint8)
    zeros = torch.randint(16, (4, 6), generator=generator, dtype=torch.uint8)
    scales = torch.rand((4, 6), generator=generator).to(dtype)
    found = Codes(numbers, zeros, scales).dequantised()
    of = torch.arange(32) // 8
    assert torch.equal(found, meant((numbers.int(), zeros.int(), scales), 8))
    exact = (numbers.double() - zeros.double()[of]) * scales.double()[of]
    assert torch.equal(found.double(), exact.T)
