"""Prepacked linear layers: the same results up to rounding, wherever they gain, and nowhere else."""

import copy

import pytest
import torch
from torch import nn

from goodspeed.engine.torch import prepacked_linear
from goodspeed.engine.torch.prepacked_linear import product

pytestmark = pytest.mark.skipif(not prepacked_linear._is_available(), reason="this build of torch has no oneDNN")


@pytest.mark.parametrize("num_tokens", [1, 7, 100])
@pytest.mark.parametrize(("inputs", "outputs", "has_bias"), [(384, 512, True), (512, 384, False)])
@torch.inference_mode()
def test_results_differ_by_rounding_alone(inputs: int, outputs: int, has_bias: bool, num_tokens: int) -> None:
    torch.manual_seed(0)
    layer, rows = nn.Linear(inputs, outputs, bias=has_bias), torch.randn(num_tokens, inputs)
    plain = copy.deepcopy(layer)
    torch.testing.assert_close(product(layer)(rows), plain(rows), rtol=1e-4, atol=1e-4)
    assert layer.weight.is_mkldnn  # the plain weight is gone


@torch.inference_mode()
def test_a_weight_that_another_module_holds_stays() -> None:
    layer, rows = nn.Linear(384, 600, bias=False), torch.randn(3, 384)
    weight = layer.weight
    torch.testing.assert_close(product(layer, is_shared=True)(rows), layer(rows), rtol=1e-4, atol=1e-4)
    assert layer.weight is weight


@pytest.mark.parametrize("layer", [nn.Linear(384, 8), nn.Linear(64, 4096), nn.Linear(384, 512, dtype=torch.float64)])
def test_what_does_not_gain_is_left_alone(layer: nn.Linear) -> None:
    assert product(layer) == layer.forward
