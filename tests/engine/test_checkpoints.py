"""Loading: what a checkpoint tells, and every way in which a name or a folder is wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from goodspeed.engine import checkpoints, folders
from goodspeed.errors import CheckpointError, ConfigError, UnsupportedModelError


def edit(folder: Path, **settings: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


def test_what_a_checkpoint_tells(save_checkpoint: Callable[..., Path]) -> None:
    folder = save_checkpoint()
    found = checkpoints.load(str(folder))
    assert (found.name, found.vocab_size, found.num_tokens) == (str(folder), 300, 258)
    assert (found.context_len, found.eos_ids) == (512, (256,))
    assert (found.device, found.dtype, found.model.training) == (torch.device("cpu"), torch.float32, False)
    assert not any(weight.requires_grad for weight in found.model.parameters())
    assert found.tokenizer_fingerprint == checkpoints.fingerprint(checkpoints.load_tokenizer(str(folder)))


def test_sixteen_bit_weights_run_in_float32_unless_asked(save_checkpoint: Callable[..., Path]) -> None:
    folder = edit(save_checkpoint(), dtype="bfloat16")
    weights = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert {p.dtype for p in checkpoints.load(str(folder)).model.parameters()} == {torch.float32}
    asked = checkpoints.load(str(folder), dtype="float16")
    assert {p.dtype for p in asked.model.parameters()} == {asked.dtype} == {torch.float16}


def test_several_ids_may_end_a_text(save_checkpoint: Callable[..., Path]) -> None:
    folder = save_checkpoint()
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [256, 3]}))
    assert checkpoints.load(str(folder)).eos_ids == (256, 3)


@pytest.mark.parametrize(
    "name", ["no-such-model", "./missing/folder", "/nowhere/at/all", "", "a/b/c", "../no-such-folder"]
)
def test_an_unknown_name_says_what_there_is(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"(?s)not found.*tiny-target, tiny-draft-s, tiny-draft-m"):
        checkpoints.load(name)


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fail(name: str, **options: object) -> str:
        asked.append(options.get("local_files_only", False))
        raise ConnectionError("no route to host\nand a long story")

    monkeypatch.setattr(folders, "snapshot_download", fail)
    with pytest.raises(CheckpointError, match=r"'Qwen/Qwen3-0.6B' was not found .*no route to host\)"):
        checkpoints.load("Qwen/Qwen3-0.6B")
    assert asked == [True, False]


def test_a_hub_model_that_is_at_hand_is_not_asked_for(
    save_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_checkpoint()

    def at_hand(name: str, *, local_files_only: bool = False, **options: object) -> str:
        assert local_files_only
        return str(folder)

    monkeypatch.setattr(folders, "snapshot_download", at_hand)
    assert checkpoints.load("someone/something").vocab_size == 300


def test_not_a_checkpoint_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"not a checkpoint folder: it has no config.json"):
        checkpoints.load(str(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="is a file"):
        checkpoints.load(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("content", "what"),
    [("{", "cannot be read as JSON"), ("[]", "no model_type"), ("{}", "no model_type"), ("[" * 100_000, "JSON")],
)
def test_a_damaged_config(tmp_path: Path, content: str, what: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=what):
        checkpoints.load(str(tmp_path))


def test_an_architecture_that_does_not_exist(save_checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match="made_up"):
        checkpoints.load(str(edit(save_checkpoint(), model_type="made_up")))


def test_pickles_are_never_opened(save_checkpoint: Callable[..., Path]) -> None:
    folder = save_checkpoint()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UnsupportedModelError, match=r"pytorch_model.bin are pickles"):
        checkpoints.load(str(folder))
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        checkpoints.load(str(folder))


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "evil.Model"}}, "auto_map"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
    ],
)
def test_refused_by_configuration(save_checkpoint: Callable[..., Path], settings: dict[str, object], what: str) -> None:
    with pytest.raises(UnsupportedModelError, match=what):
        checkpoints.load(str(edit(save_checkpoint(), **settings)))


def test_weights_that_are_missing_or_damaged(save_checkpoint: Callable[..., Path]) -> None:
    folder = save_checkpoint()
    weights = load_file(folder / "model.safetensors")
    missing = weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"missing keys.*layers.1.mlp.up_proj"):
        checkpoints.load(str(folder))
    save_file(weights | {"model.layers.1.mlp.up_proj.weight": missing[:3].contiguous()}, folder / "model.safetensors")
    with pytest.raises(CheckpointError):
        checkpoints.load(str(folder))
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=r"model.safetensors is damaged"):
        checkpoints.load(str(folder))


def test_a_tokenizer_with_more_ids_than_the_model(save_checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match="ids up to 257 and the model only 256 rows"):
        checkpoints.load(str(save_checkpoint("llama", vocab_size=256, eos_token_id=0)))


@pytest.mark.parametrize("device", ["tpu", "meta", "cuda:99", "cpu:x"])
def test_devices(device: str) -> None:
    with pytest.raises(ConfigError, match=f"device {device!r}"):
        checkpoints.load("tiny-target", device=device)


@pytest.mark.parametrize("dtype", ["int8", "float64", "torch.float32"])
def test_dtypes(dtype: str) -> None:
    with pytest.raises(ConfigError, match="float32, bfloat16, float16"):
        checkpoints.load("tiny-target", dtype=dtype)
