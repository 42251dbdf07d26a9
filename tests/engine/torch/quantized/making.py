"""Makes tiny quantised checkpoints by rounding to nearest, each beside a plain one of the same numbers.

The packing is written by the formats' definitions, number by number, and shares nothing with the readers.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
AWQ = {"quant_method": "awq", "bits": 4, "zero_point": True, "version": "gemm", "modules_to_not_convert": None}
Rounded = tuple[Tensor, Tensor, Tensor]  # numbers [in, out], zeros and scales [groups, out]
Tensors = dict[str, Tensor]


def rounded(weight: Tensor, group_size: int) -> Rounded:
    """Rounds a weight [out, in] to 4 bits by group of inputs."""
    grouped = weight.T.reshape(-1, group_size, weight.shape[0])
    low, high = grouped.amin(dim=1).clamp(max=0), grouped.amax(dim=1).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=1e-4).half()
    zeros = (-low / scales.float()).round().clamp(0, 14)
    numbers = (grouped / scales.float()[:, None] + zeros[:, None]).round().clamp(0, 15)
    return numbers.reshape(weight.T.shape).int(), zeros.int(), scales


def meant(weight: Rounded, group_size: int) -> Tensor:
    """The weight [out, in] that numbers stand for, in float32, input by input."""
    numbers, zeros, scales = weight
    of = [i // group_size for i in range(len(numbers))]
    rows = [(numbers[i] - zeros[of[i]]).float() * scales[of[i]].float() for i in range(len(numbers))]
    return torch.stack(rows, dim=1).contiguous()


def packed(numbers: Tensor, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Packs the columns of [rows, columns] by eights; place i of a word has column order[i] of its eight."""
    eights = numbers.long().reshape(numbers.shape[0], -1, 8)
    words = torch.zeros(eights.shape[:-1], dtype=torch.int64)
    for place, column in enumerate(order):
        words += eights[..., column] << 4 * place
    return torch.where(words < 1 << 31, words, words - (1 << 32)).int().contiguous()


def awq_tensors(name: str, weight: Rounded) -> Tensors:
    numbers, zeros, scales = weight
    words = (packed(numbers, AWQ_ORDER), packed(zeros, AWQ_ORDER), scales)
    return {f"{name}.{part}": tensor for part, tensor in zip(("qweight", "qzeros", "scales"), words, strict=True)}


def is_quantised(name: str, weight: Tensor) -> bool:
    return name.endswith(("proj.weight", "w1.weight", "w2.weight", "w3.weight")) and weight.dim() == 2


def write_pair(
    plain: Path, settings: Mapping[str, object], quantise: Callable[[str, Tensor], tuple[Tensors, Tensor]]
) -> tuple[Path, Path]:
    """Turns a checkpoint into one of the rounded numbers, and puts a quantised one beside it: (quantised, plain).

    quantise: gets a layer's name and weight; returns its tensors, and the weight that they stand for.
    """
    folder = plain.with_name(f"{plain.name}-quantised")
    shutil.copytree(plain, folder)
    small, same = dict[str, Tensor](), dict[str, Tensor]()
    for name, tensor in load_file(plain / "model.safetensors").items():
        if is_quantised(name, tensor):
            tensors, weight = quantise(name.removesuffix(".weight"), tensor)
            small, same = small | tensors, same | {name: weight}
        else:
            small[name] = same[name] = tensor
    save_file(same, plain / "model.safetensors", metadata={"format": "pt"})
    save_file(small, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": dict(settings)}))
    return folder, plain


def awq_pair(plain: Path, group_size: int = 16) -> tuple[Path, Path]:
    def quantise(name: str, weight: Tensor) -> tuple[Tensors, Tensor]:
        numbers = rounded(weight, group_size)
        return awq_tensors(name, numbers), meant(numbers, group_size)

    return write_pair(plain, AWQ | {"group_size": group_size}, quantise)


def change(folder: Path, edit: Callable[[Tensors], object]) -> None:
    """Edits the tensors of a checkpoint in one file."""
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
