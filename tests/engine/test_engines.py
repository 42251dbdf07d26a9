"""Engines are found by their names, those of other packages too."""

import re
import sys
from pathlib import Path

import pytest
import torch

from goodspeed.engine import engines
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.errors import ConfigError
from tests import gguf_files

PAGE = Path(__file__).parents[2] / "docs" / "ENGINE.md"
MODULE = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the page's engine, installed; returns its module."""
    info = tmp_path / "other_engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{engines.ENGINES.group}]\nmine = engine_of_tests\n")
    (module := tmp_path / "engine_of_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(engines.ENGINES, "_known", {})
    monkeypatch.delitem(sys.modules, "engine_of_tests", raising=False)
    return module


def test_an_engine_of_another_package(mine: Path) -> None:
    checkpoint = engines.load("tiny-draft-s", engine="mine")
    plain = engines.load("tiny-draft-s")
    assert (checkpoint.engine, plain.engine) == ("mine", "torch")
    assert engines.token_bytes(checkpoint) == engines.token_bytes(plain)
    started = [engines.start(each, num_pages=2) for each in (checkpoint, plain)]
    found, expected = (engine.forward([Chunk("a", [1, 2, 3], 1)]) for engine in started)
    assert found.equal(expected)
    with pytest.raises(ConfigError, match="no engine is named 'nobody'; choose one of: mine, openvino, torch"):
        engines.load("tiny-draft-s", engine="nobody")


def test_an_engine_that_cannot_be_imported(mine: Path) -> None:
    mine.write_text("import a_missing_library")
    with pytest.raises(ConfigError, match=r"the engine mine: engine_of_tests cannot be imported: .*a_missing_library"):
        engines.ENGINES.find("mine")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def load(): pass", "the engine mine has no function start and no token_bytes; see docs/ENGINE.md"),
        (MODULE.replace(', engine="mine"', ""), "the engine mine: load must return a Checkpoint with engine='mine'"),
        (MODULE.replace("return replace", "replace", 1), "the engine mine: load must return a Checkpoint"),
    ],
)
def test_an_engine_that_is_none(mine: Path, code: str, told: str) -> None:
    mine.write_text(code)
    with pytest.raises(ConfigError, match=told):
        engines.load("tiny-draft-s", engine="mine")


def test_auto_chooses_by_the_kind_of_model() -> None:
    assert engines.engine_of("tiny-target") == "torch"
    for name in ("smollm2", gguf_files.made("tiny-draft-s")):
        assert engines.engine_of(name) == "openvino"
    with pytest.raises(ConfigError, match="--engine openvino: tiny-draft-s is a checkpoint"):
        engines.load("tiny-draft-s", engine="openvino")


def test_torch_has_the_threads_of_a_model_that_it_computes_and_one_beside_openvino() -> None:
    before = torch.get_num_threads()
    try:
        for name, expected in (("tiny-draft-s", 2), (gguf_files.made("tiny-draft-s"), 1), ("tiny-draft-s", 2)):
            torch.set_num_threads(3)
            engines.load(name, num_threads=2)
            assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)
