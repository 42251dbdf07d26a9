"""The fingerprint of a model: equal for the same weights, another for anything that changes what is computed."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from goodspeed.engine.model_files.checkpoint_folder import public_name
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.fingerprint import NUM_SAMPLES, fingerprint, revision
from tests.engine.conftest import Save
from tests.engine.torch.test_checkpoints import edit


def test_the_same_checkpoint_is_the_same_wherever_it_lies(save_checkpoint: Save, tmp_path: Path) -> None:
    folder = save_checkpoint()
    copied = tmp_path / "copied"
    folder.rename(copied)
    edit(copied, transformers_version="another", _name_or_path="elsewhere")
    again = checkpoints.load(str(copied))
    assert len(again.model_fingerprint) == 32
    assert again.model_fingerprint == fingerprint(again.model, copied, torch.float32)
    copied.rename(folder)
    assert checkpoints.load(str(folder)).model_fingerprint == again.model_fingerprint


def test_other_weights_settings_or_precision_are_another_model(save_checkpoint: Save) -> None:
    folder = save_checkpoint()
    known = {checkpoints.load(str(folder)).model_fingerprint}
    known.add(checkpoints.load(str(folder), dtype="bfloat16").model_fingerprint)
    edit(folder, rope_theta=5000.0)
    known.add(checkpoints.load(str(folder)).model_fingerprint)
    weights = load_file(folder / "model.safetensors")
    for name in ("model.norm.weight", "model.layers.1.mlp.up_proj.weight"):
        weights[name] = weights[name] + 1e-3
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        known.add(checkpoints.load(str(folder)).model_fingerprint)
    assert len(known) == 5


def test_every_element_of_a_small_tensor_counts_and_the_ends_of_a_large_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")

    def of(weight: torch.Tensor) -> str:
        layer = torch.nn.Linear(1, 1, bias=False)
        layer.weight = torch.nn.Parameter(weight)
        return fingerprint(layer, tmp_path, torch.float32)

    for size, positions in ((NUM_SAMPLES, range(NUM_SAMPLES)), (10_000, (0, 9_999)), (0, ())):
        plain = torch.zeros(size)
        others = [of(plain.index_fill(0, torch.tensor([position]), 1.0)) for position in positions]
        assert len({of(plain), *others}) == 1 + len(others), size


def test_a_snapshot_of_the_hub_is_of_a_revision() -> None:
    assert revision(Path("/cache/models--a--b/snapshots/0123abc")) == "0123abc"
    assert revision(Path("/models/qwen")) == ""


def test_others_see_the_last_part_of_a_folder_only(tmp_path: Path) -> None:
    (tmp_path / "secret" / "qwen").mkdir(parents=True)
    assert public_name(str(tmp_path / "secret" / "qwen")) == public_name(f"{tmp_path}/secret/qwen/") == "qwen"
    assert public_name("Qwen/Qwen3-14B") == "Qwen/Qwen3-14B"
    assert public_name("name\x1b[2J" + "x" * 300) == ("name[2J" + "x" * 300)[:256]
