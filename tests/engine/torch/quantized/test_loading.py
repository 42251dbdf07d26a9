"""Quantised folders: layers that stay in 4 bits, what is in memory, identity, and everything that can be wrong."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MixtralConfig, Qwen2Config

from goodspeed.engine.model_files.checkpoint_folder import INDEX
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.loading import start
from goodspeed.engine.torch.quantized import loading
from goodspeed.engine.torch.quantized.int4_linear import Int4Linear
from goodspeed.engine.torch.tensor_parallel.splitting import refuse_folder
from goodspeed.errors import CheckpointError, ConfigError, UnsupportedModelError
from tests.engine.conftest import Save
from tests.engine.torch.quantized.making import Tensors, awq_pair, change
from tests.engine.torch.test_checkpoints import edit
from tests.engine.torch.test_families import SIZES

GATE = "model.layers.1.mlp.gate_proj"
PARTS = QWEIGHT, QZEROS, SCALES = (f"{GATE}.qweight", f"{GATE}.qzeros", f"{GATE}.scales")


@pytest.fixture
def folder(save_checkpoint: Save) -> Path:
    return awq_pair(save_checkpoint("qwen3"), 32)[0]


def int4_layers(folder: Path) -> list[str]:
    model = checkpoints.load(str(folder), dtype="bfloat16").model
    return [name for name, module in model.named_modules() if isinstance(module, Int4Linear)]


def test_layers_stay_in_4_bits_in_bfloat16_only(folder: Path) -> None:
    assert len(int4_layers(folder)) == 14
    for dtype in ("float32", "float16"):
        found = checkpoints.load(str(folder), dtype=dtype).model
        assert not any(isinstance(module, Int4Linear) for module in found.modules())
        assert {weight.dtype for weight in found.parameters()} == {checkpoints.DTYPES[dtype]}


def test_logits_of_layers_in_4_bits(save_checkpoint: Save) -> None:
    quantised, plain = awq_pair(save_checkpoint("qwen3"), 32)
    found, expected = (
        start(checkpoints.load(str(folder), dtype=dtype), num_pages=16).forward([Chunk("a", list(range(30)), 30)])
        for folder, dtype in ((quantised, "bfloat16"), (plain, "float32"))
    )
    difference = (found - expected)[:, :258].abs()
    assert difference.median() < 0.05 * expected[:, :258].abs().max()  # a wrong layer: 0.2 and more


def test_the_class_and_the_settings_of_the_plain_model(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [256, 3], "temperature": 0.7}))
    plain = checkpoints.load(str(folder))
    packed = checkpoints.load(str(folder), dtype="bfloat16")
    assert type(plain.model) is type(packed.model)
    assert plain.eos_ids == packed.eos_ids == (256, 3)
    assert plain.settings.completions.temperature == 0.7
    assert not any(weight.requires_grad for weight in packed.model.parameters())


def test_identity_covers_numbers_and_scales(folder: Path, tmp_path: Path) -> None:
    known = set()
    for dtype in ("float32", "bfloat16"):
        known.add(checkpoints.load(str(folder), dtype=dtype).model_fingerprint)
        assert checkpoints.load(str(folder), dtype=dtype).model_fingerprint in known
    for part in (QWEIGHT, SCALES):
        change(folder, lambda tensors, part=part: tensors[part].view(-1)[0].mul_(2))  # type: ignore[misc]
        known |= {checkpoints.load(str(folder), dtype=dtype).model_fingerprint for dtype in ("float32", "bfloat16")}
    assert len(known) == 6


def test_layers_that_cannot_stay_are_dequantised_with_a_warning(save_checkpoint, caplog):
    with caplog.at_level(logging.WARNING, "goodspeed.engine"):
        assert int4_layers(awq_pair(save_checkpoint("qwen3"), 16)[0]) == []
    assert [vars(record)["layers"] for record in caplog.records] == [14]


def test_experts_are_dequantised_beside_layers_in_4_bits(save_checkpoint: Save) -> None:
    config = MixtralConfig(**(SIZES | {"num_key_value_heads": 2, "num_local_experts": 4}))
    folder = awq_pair(save_checkpoint(config), 32)[0]
    assert len(int4_layers(folder)) == 8
    assert not any("experts" in name for name in int4_layers(folder))


def test_biases_stay_beside_layers_in_4_bits(save_checkpoint: Save) -> None:
    quantised, _ = awq_pair(save_checkpoint(Qwen2Config(**(SIZES | {"num_key_value_heads": 2}))), 32)
    change(quantised, lambda tensors: tensors["model.layers.0.self_attn.q_proj.bias"].fill_(0.5))
    model = checkpoints.load(str(quantised), dtype="bfloat16").model
    assert model.get_parameter("model.layers.0.self_attn.q_proj.bias").tolist() == [0.5] * 32
    assert len([name for name, module in model.named_modules() if isinstance(module, Int4Linear)]) == 14


def test_shapes_that_fail_their_trial_are_dequantised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "is_right", lambda shape, device: shape.num_outputs != 64)
    names = int4_layers(folder)
    assert len(names) == 10
    assert not any("gate_proj" in name or "up_proj" in name for name in names)


def test_weights_in_several_files(folder: Path) -> None:
    expected = checkpoints.load(str(folder)).model_fingerprint
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"model-{i % 2 + 1}-of-2.safetensors" for i, name in enumerate(sorted(tensors))}
    for shard in set(places.values()):
        save_file({name: tensors[name] for name in tensors if places[name] == shard}, folder / shard)
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))
    assert checkpoints.load(str(folder)).model_fingerprint == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda all_: all_.pop(SCALES), r"gate_proj.scales is missing among the quantised weights"),
        (lambda all_: all_.pop(QWEIGHT), r"gate_proj.qweight is missing among the quantised weights"),
        (lambda all_: [all_.pop(part) for part in PARTS], r"missing keys among the weights .*gate_proj.weight"),
        (lambda all_: all_.pop("model.norm.weight"), r"missing keys among the weights .*model.norm.weight"),
        (
            lambda all_: all_.update({QZEROS: all_[QZEROS][:, :-1].contiguous()}),
            r"gate_proj: the shapes \[32, 8\], \[1, 7\], \[1, 64\] do not match each other",
        ),
        (
            lambda all_: all_.update({SCALES: all_[SCALES].int()}),
            r"gate_proj: its words must be int32, its scales floats",
        ),
        (
            lambda all_: all_.update({part: all_[part][:, : all_[part].shape[1] // 2].contiguous() for part in PARTS}),
            r"gate_proj.weight would have shape \[32, 32\], but the model needs \[64, 32\]",
        ),
        (
            lambda all_: all_.update({f"{GATE}.bias": torch.ones(64)}),
            r"1 of the tensors have no place .*gate_proj.bias",
        ),
    ],
)
def test_tensors_that_do_not_fit(folder: Path, damage: Callable[[Tensors], object], what: str, dtype: str) -> None:
    change(folder, damage)
    with pytest.raises(CheckpointError, match=rf"quantised: .*{what}"):
        checkpoints.load(str(folder), dtype=dtype)


def test_a_bias_of_zeros_that_the_model_lacks_changes_nothing(save_checkpoint: Save) -> None:
    folder = awq_pair(save_checkpoint("qwen3"))[0]
    expected = checkpoints.load(str(folder)).model_fingerprint
    change(folder, lambda tensors: tensors.update({f"{GATE}.bias": torch.zeros(64)}))
    assert checkpoints.load(str(folder)).model_fingerprint == expected


def test_settings_that_do_not_fit_the_weights(folder: Path, save_checkpoint: Save) -> None:
    settings = json.loads((folder / "config.json").read_text())["quantization_config"]
    with pytest.raises(CheckpointError, match="64 inputs, which are not whole groups of 24"):
        checkpoints.load(str(edit(folder, quantization_config=settings | {"group_size": 24})))
    with pytest.raises(CheckpointError, match="no weight is quantised"):
        checkpoints.load(str(edit(save_checkpoint(), quantization_config=settings)))
    with pytest.raises(UnsupportedModelError, match=r"quantised: quantization_config: bits is 8"):
        checkpoints.load(str(edit(folder, quantization_config=settings | {"bits": 8})))


def test_they_are_not_split(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"--tp 2: .* has quantised weights .*omit --tp"):
        refuse_folder(str(folder), 2)
