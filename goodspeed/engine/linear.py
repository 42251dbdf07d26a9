"""Linear layers with weights prepacked for oneDNN: two to three times as fast on a CPU in float32.

A verify round or a drafting step multiplies a few rows with each weight, and its time is the time to read the weight.
The library behind `torch.nn.functional.linear` lays it out anew in every call; here that is done once. Results differ
from the plain layer's by rounding alone.
"""

import torch
from torch import Tensor, nn

SMALLEST = 1 << 17
"""Numbers in a weight below which the plain layer is as quick (measured: 128 x 384 is, 384 x 384 is not)."""

NARROWEST = 256
"""Number of inputs below which the plain layer is as quick, whatever the outputs (128 x 4,096 is slower packed)."""

ROUNDING = 1e-4
"""Largest relative difference from the plain layer that counts as rounding, in the trial of each shape."""


class PrepackedLinear(nn.Linear):
    """An `nn.Linear` whose weight `prepack` has packed."""

    packed: Tensor

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(input, self.packed, self.bias, "none", [], "")
        return out


def prepack(model: nn.Module) -> int:
    """Packs float32 layers on a CPU that gain by it, and returns how many. A second call does nothing.

    The packed weight takes the plain one's place in memory, unless that is shared with another module (an embedding).
    """
    if not _is_available():
        return 0
    owners = _owners(model)
    chosen = [module for module in model.modules() if type(module) is nn.Linear and _gains(module)]
    right = {shape: _try(shape) for shape in {tuple(module.weight.shape) for module in chosen}}
    chosen = [module for module in chosen if right[tuple(module.weight.shape)]]
    for module in chosen:
        _pack(module, shared=owners[id(module.weight)] > 1)
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
    is_large = weight.numel() >= SMALLEST and module.in_features >= NARROWEST
    return is_large and weight.device.type == "cpu" and weight.dtype == torch.float32


def _reorder(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
    return packed


@torch.no_grad()
def _try(shape: tuple[int, ...]) -> bool:
    """Whether this machine's library multiplies a packed weight of this shape correctly."""
    generator = torch.Generator().manual_seed(0)
    weight, rows = (torch.randn(size, generator=generator) for size in (shape, (3, shape[1])))
    expected = nn.functional.linear(rows, weight)
    try:
        found = torch.ops.mkldnn._linear_pointwise(rows, _reorder(weight), None, "none", [], "")
    except RuntimeError:
        return False
    return bool((found - expected).abs().max() <= ROUNDING * expected.abs().max())


@torch.no_grad()
def _pack(module: nn.Linear, *, shared: bool) -> None:
    packed = _reorder(module.weight.detach())
    module.__class__ = PrepackedLinear
    module.packed = packed
    if not shared:
        module.weight = nn.Parameter(packed, requires_grad=False)
