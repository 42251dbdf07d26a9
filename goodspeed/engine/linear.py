"""Linear layers whose weights lie as oneDNN reads them: on a CPU in float32 that is two to three times as fast.

A verify round or a drafting step multiplies a few rows with each weight, and what it takes is the time to read the
weight. The library behind `torch.nn.functional.linear` lays it out anew in every call; here that is done once. Results
differ from the plain layer's by rounding alone. Knows nothing about models: any module's `nn.Linear` layers will do.
"""

import torch
from torch import Tensor, nn

SMALLEST = 1 << 17
"""Numbers in a weight below which the plain layer is as quick (measured: 128 x 384 is, 384 x 384 is not)."""

NARROWEST = 256
"""Inputs below which it is, too, however many outputs there are (measured: 128 x 4,096 takes longer packed)."""

ROUNDING = 1e-4
"""Largest relative difference from the plain layer that is taken for rounding, in the trial of each shape."""


class PrepackedLinear(nn.Linear):
    """An `nn.Linear` that was given a second copy of its weight by `prepack`."""

    packed: Tensor

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(input, self.packed, self.bias, "none", [], "")
        return out


def prepack(model: nn.Module) -> int:
    """Packs what gains by it and is float32 on a CPU; returns how many layers. A second call finds nothing to do.

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
    """How many modules hold each parameter."""
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
    """Whether this machine's library multiplies such a weight right; one that cannot is left alone."""
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
