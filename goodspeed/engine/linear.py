"""Linear layers with weights prepacked for oneDNN: two to three times as fast on a CPU.

A verify round or a drafting step multiplies a few rows with each weight, and its time is the time to read the weight.
The library behind `torch.nn.functional.linear` lays it out anew in every call; here that is done once. Results differ
from the plain layer's by rounding alone. In bfloat16 they do not depend on the other rows: with more than BLOCK_ROWS of
them oneDNN sums in another order, so these are multiplied block by block.
"""

from functools import cache

import torch
from torch import Tensor, nn

SMALLEST = 1 << 17
"""Numbers in a weight below which the plain layer is as quick (measured: 128 x 384 is, 384 x 384 is not)."""

NARROWEST = 256
"""Number of inputs below which the plain layer is as quick, whatever the outputs (128 x 4,096 is slower packed)."""

ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
"""Largest relative difference from the plain layer that counts as rounding, in the trial of each shape."""

BLOCK_ROWS = 32
"""Rows up to which a row's product in bfloat16 was the same bits among any others (measured with 15 shapes)."""


class PrepackedLinear(nn.Linear):
    """An `nn.Linear` whose weight `prepack` has packed."""

    packed: Tensor

    def forward(self, input: Tensor) -> Tensor:
        if input.dtype == torch.bfloat16 and input.shape[-2] > BLOCK_ROWS:
            return torch.cat(
                [_multiply(rows, self.packed, self.bias) for rows in torch.split(input, BLOCK_ROWS, -2)], -2
            )
        return _multiply(input, self.packed, self.bias)


def _multiply(rows: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
    return out


def prepack(model: nn.Module, *, shared: bool = False) -> int:
    """Packs the layers on a CPU that gain by it, and returns how many. A second call does nothing.

    The packed weight takes the plain one's place in memory, unless another module has that too (an embedding; one
    outside of `model` where it is `shared`).
    """
    if not _is_available():
        return 0
    owners = _owners(model)
    chosen = [module for module in model.modules() if type(module) is nn.Linear and _gains(module)]
    chosen = [module for module in chosen if _is_right(tuple(module.weight.shape), module.weight.dtype)]
    for module in chosen:
        _pack(module, shared=shared or owners[id(module.weight)] > 1)
    return len(chosen)


def _is_available() -> bool:
    return torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


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
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    is_large = weight.numel() >= SMALLEST and module.in_features >= NARROWEST
    return is_large and weight.dtype == torch.float32


def _reorder(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
    return packed


@cache
@torch.no_grad()
def _is_right(shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Returns whether this machine's library multiplies a packed weight of this shape correctly."""
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
