"""Folders of OpenVINO: logits, bits, and what is refused with one line."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from openvino import opset13 as ops

from goodspeed.engine import engines
from goodspeed.engine.model_files.finding import GRAPH
from goodspeed.engine.openvino.folder import WINDOW, context_len, read
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.tokenizing.generation_settings import FOR_ALL, FOR_PEOPLE, GenerationSettings, TextDefaults
from goodspeed.errors import CheckpointError, UnsupportedModelError
from tests.engine import gguf_models
from tests.engine.conftest import Save
from tests.engine.openvino import making

TOKENS = [(7 * i * i + i) % 250 for i in range(70)]


@pytest.fixture(scope="module")
def folder(save_checkpoint: Save) -> Path:
    return making.folder(save_checkpoint, making.stateful())


def test_logits_in_pieces_are_the_models(folder: Path) -> None:
    before = sorted(file.name for file in folder.iterdir())
    checkpoint = engines.load(str(folder), dtype="float32")
    assert (checkpoint.engine, checkpoint.context_len, checkpoint.eos_ids) == ("openvino", 512, (256,))
    engine = engines.start(checkpoint, num_pages=9)
    found = torch.cat([engine.forward([Chunk("a", TOKENS[:40], 40)]), engine.forward([Chunk("a", TOKENS[40:], 30)])])
    torch.testing.assert_close(found, making.expected(TOKENS), atol=1e-4, rtol=0)
    chosen = engine.forward([Chunk("b", TOKENS, 2), Chunk("c", TOKENS[:9], 0), Chunk("d", TOKENS[:5], 1)])
    torch.testing.assert_close(chosen, found[[68, 69, 4]], atol=1e-4, rtol=0)
    assert sorted(file.name for file in folder.iterdir()) == before


def test_another_folder_has_another_fingerprint(folder: Path, save_checkpoint: Save) -> None:
    fingerprints = {engines.load(str(folder), dtype=dtype).model_fingerprint for dtype in ("auto", "float32")}
    other = making.folder(save_checkpoint, making.stateful(seed=1))
    assert len(fingerprints | {engines.load(str(other), dtype="float32").model_fingerprint}) == 3


def configured(folder: Path, target: Path, **settings: Any) -> str:
    """Copies a folder, with other settings in config.json."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text()) | settings
    (target / "config.json").write_text(json.dumps(config))
    return str(target)


@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_angles_that_depend_on_other_rows_are_refused(folder: Path, tmp_path: Path, name: str, kind: str) -> None:
    rope: dict[str, Any] = dict.fromkeys(("long_factor", "short_factor"), [1.0] * 8)
    rope |= {"type": kind, "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 128}
    other = configured(folder, tmp_path / "other", **{"rope_parameters": None, name: rope})
    with pytest.raises(UnsupportedModelError, match=rf"^{other}: RoPE type '{kind}': .*; use a model with one of"):
        engines.load(other)


def test_positions_are_stretched_by_the_export_and_not_by_its_configuration(folder: Path, tmp_path: Path) -> None:
    rope = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    other = configured(folder, tmp_path / "other", rope_parameters=None, rope_scaling=rope)
    assert engines.load(other).context_len == 512


def test_attention_in_chunks_is_refused(folder: Path, tmp_path: Path) -> None:
    other = configured(folder, tmp_path / "other", attention_chunk_size=64)
    with pytest.raises(UnsupportedModelError, match=rf"^{other}: attention_chunk_size: .*; use a model without it"):
        engines.load(other)


def test_texts_are_no_longer_than_a_window_that_the_graph_lacks(folder: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        ({"sliding_window": 100}, 100),
        ({"sliding_window": 100, "use_sliding_window": False}, 512),
        ({"sliding_window": 100, "layer_types": ["full_attention"] * 2}, 512),
        ({"sliding_window": 1000}, 512),
    ]
    for number, (settings, wanted) in enumerate(cases):
        assert engines.load(configured(folder, tmp_path / str(number), **settings)).context_len == wanted
    model = read(str(folder), folder / GRAPH)
    [attention] = [node for node in model.get_ops() if node.get_type_name() == "PagedAttentionExtension"]
    attention.input(WINDOW).replace_source_output(ops.constant(np.int32(100)).output(0))
    assert context_len(str(folder), tmp_path / "0", model) == 512


def test_settings_of_the_layers_that_are_none(folder: Path, tmp_path: Path) -> None:
    model = read(str(folder), folder / GRAPH)
    for number, layers in enumerate((None, "2")):
        other = configured(folder, tmp_path / str(number), num_hidden_layers=layers, sliding_window=100)
        assert context_len("it", Path(other), model) == 100
    other = configured(folder, tmp_path / "other", layer_types=5)
    with pytest.raises(CheckpointError, match=r"^it: layer_types in config.json is no list; correct config.json$"):
        context_len("it", Path(other), model)


def test_what_requests_leave_open_is_as_with_checkpoints(folder, tmp_path, caplog):
    """A GGUF file says nothing of it; a folder may."""
    file = str(gguf_models.made("F32"))
    assert engines.load(file).settings == GenerationSettings(chats=TextDefaults(**FOR_PEOPLE))
    assert engines.load(file, generation_config="none").settings == GenerationSettings()
    other = configured(folder, tmp_path / "other")
    Path(other, FOR_ALL).write_text(json.dumps({"top_k": 7, "typical_p": 0.5}))
    with caplog.at_level(logging.WARNING, "goodspeed.engine"):
        assert engines.load(other).settings.chats.top_k == 7
    assert [vars(record)["keys"] for record in caplog.records] == [f"{FOR_ALL}: typical_p"]
