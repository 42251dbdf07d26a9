"""Every refusal of a checkpoint is one sentence that names it, and says what is wrong and what to do."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from goodspeed.engine.model_files import checkpoint_folder
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.loading import start
from goodspeed.errors import CheckpointError, UnsupportedModelError
from tests.engine.conftest import Save
from tests.engine.torch.test_checkpoints import edit

Damage = Callable[[Path], object]
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"


def without(*files: str) -> Damage:
    def damage(folder: Path) -> None:
        for file in files:
            (folder / file).unlink()

    return damage


def with_bytes(file: str, content: bytes) -> Damage:
    return lambda folder: (folder / file).write_bytes(content)


def cut(file: str, num_bytes: int) -> Damage:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:-num_bytes])


def config(**settings: object) -> Damage:
    return lambda folder: edit(folder, **settings)


def empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


WRONG: list[tuple[Damage, str, str]] = [
    (empty, "this is not a checkpoint folder: it has no config.json", "use one with config.json"),
    (with_bytes("config.json", b"nonsense"), "config.json cannot be read as JSON", "get the checkpoint again"),
    (with_bytes("config.json", b"{}"), "config.json has no model_type", "use a Hugging Face checkpoint"),
    (config(is_encoder_decoder=True), "encoder-decoder", "use a decoder-only model"),
    (config(model_type="made_up"), "model type `made_up` but Transformers does not recognize", "use another model"),
    (config(model_type="vit"), "ViTConfig'> for this kind of AutoModel", "use another model"),
    (
        config(hidden_size="x"),
        "the model cannot be loaded (Validation error for field 'hidden_size')",
        "or use another model",
    ),
    (config(attn_logit_softcapping=50.0), "attn_logit_softcapping: soft-capped", "use a model without it"),
    (config(auto_map={"x": "y"}), "auto_map in config.json", "or remove auto_map if transformers has this model_type"),
    (config(max_position_embeddings=0), "config.json has no max_position_embeddings", "add it"),
    (config(max_position_embeddings=-5), "in config.json is -5, but must be at least 1", "correct config.json"),
    (config(pard_token=300), "pard_token in config.json is 300, but must be 0 to 299", "correct config.json"),
    (config(pard_token=299, pard_num_tokens=65), "pard_num_tokens in config.json is 65", "correct config.json"),
    (without(TOKENIZER), "the checkpoint has no tokenizer", "get the checkpoint again with its tokenizer's files"),
    (with_bytes(TOKENIZER, b"{"), "the tokenizer cannot be loaded", "get the tokenizer's files again"),
    (without(WEIGHTS), "the checkpoint has no weights", "get it again with them"),
    (lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), "pytorch_model.bin are pickles", "convert them"),
    (
        lambda f: (f / WEIGHTS).rename(f / "x-Q4_K_M.gguf"),
        "its weights are GGUF files",
        "name that file, or use the original checkpoint",
    ),
    (lambda f: (f / WEIGHTS).rename(f / "x.safetensors"), "the weights are neither in", "get the checkpoint again"),
    (cut(WEIGHTS, 1000), f"{WEIGHTS} is damaged or incomplete", "get the checkpoint again"),
    (
        with_bytes(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        f"{WEIGHTS} is a Git LFS pointer",
        "fetch them with `git lfs pull`",
    ),
]


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as error:
        start(checkpoints.load(str(folder)), num_pages=16)
    return str(error.value)


def check(message: str, folder: Path, what: str, what_to_do: str) -> None:
    assert message.startswith(f"{folder}: ")
    said, semicolon, advice = message.removeprefix(f"{folder}: ").rpartition("; ")
    assert semicolon
    assert what in said
    assert what_to_do in advice
    assert "\n" not in message


@pytest.mark.parametrize(("damage", "what", "what_to_do"), WRONG)
def test_the_model_the_fault_and_the_way_out(save_checkpoint: Save, damage: Damage, what: str, what_to_do: str) -> None:
    folder = save_checkpoint()
    damage(folder)
    check(refusal(folder), folder, what, what_to_do)


@pytest.mark.parametrize("has_config", [True, False])
def test_a_repository_of_gguf_is_named_so(save_checkpoint, monkeypatch, has_config):
    """The hub is asked for no such files, so only the name of the repository tells."""
    folder = save_checkpoint()
    without(WEIGHTS, *(() if has_config else ("config.json",)))(folder)
    monkeypatch.setattr(checkpoint_folder, "snapshot_download", lambda *names, **options: str(folder))
    told = "^someone/Model-GGUF: its weights are GGUF files; download one .* and name that file"
    with pytest.raises(CheckpointError, match=told):
        checkpoints.load("someone/Model-GGUF")


def test_a_repository_of_openvino_is_named_so(save_checkpoint: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_checkpoint()
    without(WEIGHTS)(folder)
    monkeypatch.setattr(checkpoint_folder, "snapshot_download", lambda *names, **options: str(folder))
    for name in ("OpenVINO/Model-int4-ov", "someone/Model"):
        with pytest.raises(UnsupportedModelError, match=rf"^{name}: its weights are OpenVINO's; download all of it"):
            checkpoints.load(name)
        (folder / "openvino_config.json").touch()


@pytest.mark.parametrize("name", ["model.gguf", "nowhere/model.Q4_K_M.GGUF", "smollm2"])
def test_a_file_of_gguf_is_no_checkpoint_whether_it_is_there_or_not(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.gguf").touch()
    with pytest.raises(CheckpointError, match=f"^{name}: it is a GGUF file, but this takes a checkpoint; use the"):
        checkpoints.load(name)


@pytest.mark.thorough
def test_transformers_says_nothing_beside_a_refusal(save_checkpoint: Save) -> None:
    folder = save_checkpoint()
    config(rope_scaling={"type": "made_up"})(folder)
    command = [sys.executable, "-m", "goodspeed", "generate", "--model", str(folder), "--prompt", "x"]
    ended = subprocess.run(command, capture_output=True, text=True)
    loading, refused = ended.stderr.splitlines()
    assert loading == f"goodspeed: loading {folder} ..."
    assert f"{folder}: RoPE type 'made_up'" in refused


def test_missing_weights_are_told_in_one_line(save_checkpoint: Save, caplog: pytest.LogCaptureFixture) -> None:
    """transformers' own table of them would be as long as the model is deep."""
    folder = save_checkpoint()
    config(num_hidden_layers=3)(folder)
    caplog.clear()
    check(refusal(folder), folder, "missing keys among the weights", "get the checkpoint again")
    assert "LOAD REPORT" not in caplog.text
