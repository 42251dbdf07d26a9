"""Checkpoints as llm-compressor writes them, made with the package compressed-tensors itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme
from torch import Tensor

from goodspeed.engine import checkpoints
from goodspeed.errors import CheckpointError
from tests.engine.conftest import Save
from tests.engine.quantized.making import Tensors, change, write_pair
from tests.engine.quantized.test_same_numbers import compare

pytest.importorskip("transformers", minversion="5.23")  # older ones are refused

INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 16}
INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
FLOAT8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
ACTIVATIONS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}


def pair(plain: Path, weights: dict[str, Any], layout: str, **more: Any) -> tuple[Path, Path]:
    group = {"targets": ["Linear"], "weights": weights, "format": layout, **more}
    scheme = QuantizationScheme.model_validate(group)
    compressor: Any = BaseCompressor.get_value_from_registry(layout)

    def quantise(name: str, weight: Tensor) -> tuple[Tensors, Tensor]:
        grouped = weight.reshape(weight.shape[0], -1, weights.get("group_size", weight.shape[1]))
        largest = 448 if weights["type"] == "float" else 2 ** (weights["num_bits"] - 1) - 1
        scales = grouped.abs().amax(dim=-1) / largest
        numbers = (grouped / scales[..., None]).clamp(-largest, largest)
        numbers = numbers.to(torch.float8_e4m3fn).float() if weights["type"] == "float" else numbers.round()
        zeros = torch.zeros_like(scales, dtype=torch.int8)
        state = {"weight": weight, "weight_scale": scales, "weight_zero_point": zeros}
        packed = compressor.compress(state, scheme)
        stored = {
            f"{name}.{part}": tensor.contiguous() for part, tensor in packed.items() if part != "weight_zero_point"
        }
        return stored, (numbers * scales[..., None]).reshape(weight.shape)

    settings = {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "version": "0.20.0",
        "sparsity_config": {"format": "dense", "global_sparsity": 0.1, "sparsity_structure": "unstructured"},
        "transform_config": {},
    }
    return write_pair(plain, settings, quantise)


@pytest.mark.parametrize(
    ("weights", "layout", "more"),
    [
        (INT4, "pack-quantized", {}),
        (INT8, "int-quantized", {"input_activations": ACTIVATIONS}),
        (FLOAT8, "float-quantized", {}),
    ],
    ids=["int4", "int8", "fp8"],
)
def test_the_same_numbers(save_checkpoint: Save, weights: Any, layout: str, more: Any) -> None:
    compare(*pair(save_checkpoint("qwen3"), weights, layout, **more))


def test_tensors_that_transformers_would_leave_away(save_checkpoint: Save) -> None:
    folder, _ = pair(save_checkpoint("qwen3"), INT4, "pack-quantized")
    change(folder, lambda found: found.update({"model.layers.0.mlp.up_proj.weight_g_idx": torch.arange(32)}))
    with pytest.raises(CheckpointError, match=r"no place in the model \(model.layers.0.mlp.up_proj.weight_g_idx\)"):
        checkpoints.load(str(folder))
