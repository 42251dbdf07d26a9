"""A padded checkpoint computes the original's function."""

import errno
import os
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config

from goodspeed.engine.exporting import padding
from goodspeed.engine.exporting.padding import Shape
from goodspeed.engine.quantized.stored import StoredTensors
from goodspeed.errors import CheckpointError, ConfigError
from tests.engine.conftest import CONFIGS, SMALL, Save

HEAD = 8  # width of a head, in all of these
SHAPE = Shape(hidden=96, intermediate=100, layers=4, queries=12 * HEAD, keys=6 * HEAD)
PROMPT = torch.randint(0, 256, (1, 40), generator=torch.Generator().manual_seed(1))

KINDS: dict[str, PreTrainedConfig] = {name: CONFIGS[name] for name in ("llama", "qwen3", "mistral")} | {
    "biases of q, k and v": Qwen2Config(**SMALL, num_key_value_heads=2),
    "all biases": LlamaConfig(**SMALL, num_key_value_heads=4, attention_bias=True, mlp_bias=True),
    "tied embeddings": LlamaConfig(**SMALL, num_key_value_heads=2, tie_word_embeddings=True),
    "an epsilon that matters": LlamaConfig(**SMALL, num_key_value_heads=2, rms_norm_eps=0.3),
}


def load(folder: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_texts_stay_the_same(kind: str, save_checkpoint: Save, tmp_path: Path) -> None:
    source = save_checkpoint(KINDS[kind])

    num_parameters = padding.pad(str(source), SHAPE, tmp_path / "padded")

    original, padded = load(source), load(tmp_path / "padded")
    assert num_parameters == sum(one.numel() for one in padded.parameters())
    assert (padded.config.num_hidden_layers, padded.config.hidden_size) == (4, 96)
    with torch.no_grad():
        torch.testing.assert_close(padded(PROMPT).logits, original(PROMPT).logits, atol=1e-4, rtol=1e-4)
    texts = [model.generate(PROMPT, max_new_tokens=30, do_sample=False).tolist() for model in (original, padded)]
    assert texts[0] == texts[1]


def test_weights_beyond_a_files_limit_go_into_several(
    save_checkpoint: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save_checkpoint("llama")
    monkeypatch.setattr(padding, "SHARD_BYTES", 100_000)

    padding.pad(str(source), SHAPE, tmp_path / "padded")

    assert len(list((tmp_path / "padded").glob("model-*.safetensors"))) > 2
    with torch.no_grad():
        torch.testing.assert_close(
            load(tmp_path / "padded")(PROMPT).logits, load(source)(PROMPT).logits, atol=1e-4, rtol=1e-4
        )


def test_what_is_written_is_what_is_made_in_memory(save_checkpoint: Save, tmp_path: Path) -> None:
    source = save_checkpoint("qwen3")
    padding.pad(str(source), SHAPE, tmp_path / "padded")

    config, tensors = padding.tensors(str(source), SHAPE)

    written = StoredTensors(tmp_path / "padded")
    assert config["hidden_size"] == 96
    assert all(torch.equal(tensor, written.read(name)) for name, tensor in tensors)


def test_what_a_killed_process_left_is_removed(save_checkpoint: Save, tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (ended.pid, os.getppid()):
        (tmp_path / f"padded.{pid}.partial").mkdir()

    padding.pad(str(save_checkpoint("llama")), SHAPE, tmp_path / "padded")

    assert {path.name for path in tmp_path.iterdir()} == {"padded", f"padded.{os.getppid()}.partial"}


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (Shape(16, 100, 4, 96, 48), "hidden 16 < 32"),
        (Shape(96, 100, 1, 96, 48), "layers 1 < 2"),
        (Shape(96, 100, 4, 96, 96), "query heads for each key head 1 < 2"),
        (Shape(100, 100, 4, 96, 48), "not a multiple of a head"),
        (Shape(96, 100, 4, 100, 48), "not whole groups of heads of size 8"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(shape: Shape, said: str, save_checkpoint: Save, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        padding.pad(str(save_checkpoint("qwen3")), shape, tmp_path / "padded")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["file/padded", "file/of/padded", "n" * 300])
def test_a_place_that_cannot_be_written_is_named(name: str, save_checkpoint: Save, tmp_path: Path) -> None:
    llama = str(save_checkpoint("llama"))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"{name} cannot be written: .*; choose another place"):
        padding.pad(llama, SHAPE, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_so_is_one_whose_disk_is_full_at_last(
    save_checkpoint: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama = str(save_checkpoint("llama"))
    for error in (OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: no space")):
        monkeypatch.setattr(padding, "save_file", Mock(side_effect=error))
        with pytest.raises(ConfigError, match=r"padded cannot be written: (No|I/O error: no) space"):
            padding.pad(llama, SHAPE, tmp_path / "padded")
        assert not list(tmp_path.iterdir())


def test_refusals_name_what_is_wrong(save_checkpoint: Save, tmp_path: Path) -> None:
    llama = str(save_checkpoint("llama"))
    with pytest.raises(ConfigError, match="already exists; name a new folder"):
        padding.pad(llama, SHAPE, tmp_path)
    with pytest.raises(CheckpointError, match="only unquantised checkpoints of llama, mistral, qwen2, qwen3"):
        padding.pad(str(save_checkpoint("phi3")), SHAPE, tmp_path / "padded")
    assert not list(tmp_path.iterdir())
