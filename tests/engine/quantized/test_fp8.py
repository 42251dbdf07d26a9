"""Checkpoints of 8-bit floating-point weights: plain weights of the same numbers, the same that transformers makes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, FineGrainedFP8Config

from goodspeed.engine import checkpoints
from goodspeed.errors import CheckpointError
from tests.engine.conftest import Save
from tests.engine.quantized.making import Tensors, change, write_pair
from tests.engine.quantized.test_same_numbers import compare

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}


def fp8_pair(plain: Path, block: tuple[int, int] | None) -> tuple[Path, Path]:
    def quantise(name: str, weight: Tensor) -> tuple[Tensors, Tensor]:
        rows, columns = block or weight.shape
        scales = torch.empty(-(-weight.shape[0] // rows), -(-weight.shape[1] // columns))
        numbers, stands_for = torch.empty_like(weight).to(torch.float8_e4m3fn), torch.empty_like(weight)
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                part = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
                scales[i, j] = weight[part].abs().max() / 448
                numbers[part] = (weight[part] / scales[i, j]).to(torch.float8_e4m3fn)
                stands_for[part] = numbers[part].float() * scales[i, j]
        stored = scales if block else scales.reshape(())
        return {f"{name}.weight": numbers, f"{name}.weight_scale_inv": stored}, stands_for

    return write_pair(plain, FP8 | {"weight_block_size": list(block) if block else None}, quantise)


@pytest.mark.parametrize("block", [(16, 16), (24, 20), (128, 128), None], ids=str)
def test_the_same_numbers(save_checkpoint: Save, block: tuple[int, int] | None) -> None:
    compare(*fp8_pair(save_checkpoint("qwen3"), block))


def test_transformers_makes_the_same_weights(save_checkpoint: Save) -> None:
    folder, _ = fp8_pair(save_checkpoint("llama"), (16, 16))
    config = AutoConfig.from_pretrained(folder)
    config.quantization_config = FineGrainedFP8Config(dequantize=True, weight_block_size=(16, 16)).to_dict()
    theirs: Any = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32)
    ours = checkpoints.load(str(folder)).model.state_dict()
    for name, weight in theirs.state_dict().items():
        assert torch.equal(weight, ours[name]), name


def test_scales_of_activations_are_left_away(save_checkpoint: Save) -> None:
    folder, _ = fp8_pair(save_checkpoint(), (16, 16))
    expected = checkpoints.load(str(folder)).model_fingerprint
    change(folder, lambda found: found.update({"model.layers.0.mlp.up_proj.activation_scale": torch.ones(1)}))
    assert checkpoints.load(str(folder)).model_fingerprint == expected


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        ({"weight_scale_inv": torch.ones(4, 1)}, r"up_proj.weight_scale_inv has shape \[4, 1\] of F32, .*\[4, 2\]"),
        ({"weight": torch.ones(64, 32)}, r"up_proj.weight has shape \[64, 32\] of F32, .*F8_E4M3"),
        ({"bias": torch.ones(64).to(torch.float8_e4m3fn)}, r"up_proj.bias has 8 bits and no scales"),
        ({"other": torch.ones(1)}, r"1 of the tensors have no place in the model .*up_proj.other"),
    ],
)
def test_tensors_that_do_not_fit(save_checkpoint: Save, tensors: Tensors, what: str) -> None:
    folder, _ = fp8_pair(save_checkpoint(), (16, 16))
    wrong = {f"model.layers.0.mlp.up_proj.{part}": tensor for part, tensor in tensors.items()}
    change(folder, lambda found: found.update(wrong))
    with pytest.raises(CheckpointError, match=what):
        checkpoints.load(str(folder))
