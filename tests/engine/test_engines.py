"""Engines are found by their names, those of other packages too."""

import sys
from pathlib import Path

import pytest
import torch

from goodspeed.engine import engines
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.errors import ConfigError
from tests import gguf_files

MODULE = """
from dataclasses import replace

from goodspeed.engine.torch import engine

def load(name, **settings):
    return replace(engine.load(name.removeprefix("other:"), **settings), engine="other")

start, token_bytes = engine.start, engine.token_bytes
"""


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with an engine, installed; returns its module."""
    info = tmp_path / "other_engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{engines.ENGINES.group}]\nother = engine_of_tests\n")
    (module := tmp_path / "engine_of_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(engines.ENGINES, "_known", {})
    return module


def test_an_engine_of_another_package(other: Path) -> None:
    checkpoint = engines.load("other:tiny-draft-s", engine="other")
    plain = engines.load("tiny-draft-s")
    assert (checkpoint.engine, plain.engine) == ("other", "torch")
    assert engines.token_bytes(checkpoint) == engines.token_bytes(plain)
    found, expected = (
        engines.start(each, num_pages=2).forward([Chunk("a", [1, 2, 3], 1)]) for each in (checkpoint, plain)
    )
    assert found.equal(expected)
    with pytest.raises(ConfigError, match="no engine is named 'nobody'; choose one of: openvino, other, torch"):
        engines.load("tiny-draft-s", engine="nobody")


def test_an_engine_that_cannot_be_imported(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "engine_of_tests", raising=False)
    other.write_text("import a_missing_library")
    with pytest.raises(ConfigError, match=r"the engine other: engine_of_tests cannot be imported: .*a_missing_library"):
        engines.ENGINES.find("other")


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
