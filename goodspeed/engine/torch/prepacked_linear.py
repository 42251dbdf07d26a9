"""Products with weights prepacked for oneDNN: up to three times as fast on a CPU.

A verify round or a drafting step multiplies only a few rows with each weight, so its time is the time to read the
weight. `torch.nn.functional.linear` rearranges the weight in every call; a prepacked weight is rearranged once. Results
differ from the plain layer's only by rounding; a model's trial (`trial.py`) compares its logits.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

Product: TypeAlias = Callable[[Tensor], Tensor]
"""Multiplies rows [num_tokens, inputs]; returns [num_tokens, outputs]."""

SMALLEST = 1 << 17
"""Smallest weight worth packing, in elements (measured: 384 x 384 gains, 128 x 384 does not)."""

NARROWEST = 128
"""Fewest inputs worth packing, for any number of outputs (1 row by 4,096 x 128: 36 us plain, 47 packed; 8 rows: 160
and 96)."""


def product(layer: nn.Linear, *, is_shared: bool = False) -> Product:
    """Returns a layer's product, on a CPU with a packed weight where that gains.

    The packed weight replaces the plain one in memory. is_shared: another module holds the plain one, which stays.
    """
    if not _gains(layer):
        return layer.forward
    bias, packed = layer.bias, torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())
    if not is_shared:
        layer.weight = nn.Parameter(packed, requires_grad=False)

    def multiply(rows: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, packed, bias, "none", [], "")
        return out

    return multiply


def has_bfloat16() -> bool:
    """True if this CPU multiplies bfloat16 numbers with instructions of its own."""
    return _is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _is_available() -> bool:
    has_mkldnn = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    return has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _gains(layer: nn.Linear) -> bool:
    weight = layer.weight
    if weight.device.type != "cpu":
        return False
    if weight.dtype == torch.bfloat16:
        return has_bfloat16()
    is_large = weight.numel() >= SMALLEST and layer.in_features >= NARROWEST
    return is_large and weight.dtype == torch.float32 and _is_available()
