"""Linear layers with weights prepacked for oneDNN: two to three times as fast on a CPU.

A verify round or a drafting step multiplies only a few rows with each weight, so its time is the time to read the
weight. `torch.nn.functional.linear` rearranges the weight in every call; a prepacked weight is rearranged once. Results
differ from the plain layer's only by rounding.
"""

from functools import cache

import torch
from torch import Tensor, nn

SMALLEST = 1 << 17
"""Smallest weight worth packing, in elements (measured: 384 x 384 gains, 128 x 384 does not)."""

NARROWEST = 128
"""Fewest inputs worth packing, for any number of outputs (1 row by 4,096 x 128: 36 us plain, 47 packed; 8 rows: 160
and 96)."""

ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
"""Largest relative difference from the plain layer that counts as rounding, in the trial of each shape."""


class PrepackedLinear(nn.Linear):
    """An `nn.Linear` with a weight packed by `prepack`."""

    packed: Tensor

    def forward(self, input: Tensor) -> Tensor:
        return _multiply(input, self.packed, self.bias)


def _multiply(rows: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, packed, bias, "none", [], "")
    return out


def prepack(model: nn.Module, *, shared: bool = False) -> int:
    """Packs the layers on a CPU that gain by it, and returns their number. Idempotent.

    The packed weight replaces the plain one in memory, unless another module holds the plain one (such as an
    embedding). shared: a module outside of `model` holds it.
    """
    if not _is_available():
        return 0
    owners = _owners(model)
    chosen = [module for module in model.modules() if type(module) is nn.Linear and _gains(module)]
    chosen = [module for module in chosen if _is_right(tuple(module.weight.shape), module.weight.dtype)]
    for module in chosen:
        _pack(module, shared=shared or owners[id(module.weight)] > 1)
    return len(chosen)


def has_bfloat16() -> bool:
    """True if this CPU multiplies bfloat16 numbers with instructions of its own."""
    return _is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _is_available() -> bool:
    has_mkldnn = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    return has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _owners(model: nn.Module) -> dict[int, int]:
    """Counts the modules that hold each parameter, by the parameter's id."""
    counts: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            counts[id(parameter)] = counts.get(id(parameter), 0) + 1
    return counts


def _gains(module: nn.Linear) -> bool:
    weight = module.weight
    if weight.device.type != "cpu":
        return False
    if weight.dtype == torch.bfloat16:
        return has_bfloat16()
    is_large = weight.numel() >= SMALLEST and module.in_features >= NARROWEST
    return is_large and weight.dtype == torch.float32


def _reorder(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
    return packed


@cache
@torch.no_grad()
def _is_right(shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """True if this machine's library multiplies a packed weight of this shape correctly."""
    generator = torch.Generator().manual_seed(0)
    weight, rows = (torch.randn(size, generator=generator).to(dtype) for size in (shape, (3, shape[1])))
    expected = nn.functional.linear(rows, weight)
    try:
        found = _multiply(rows, _reorder(weight), None)
    except RuntimeError:
        return False
    return bool((found - expected).abs().max() <= ROUNDING[dtype] * expected.abs().max())


@torch.no_grad()
def _pack(module: nn.Linear, *, shared: bool) -> None:
    packed = _reorder(module.weight.detach())
    module.__class__ = PrepackedLinear
    module.packed = packed
    if not shared:
        module.weight = nn.Parameter(packed, requires_grad=False)
