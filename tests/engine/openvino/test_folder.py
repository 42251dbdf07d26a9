"""Folders of OpenVINO: logits, bits, and what is refused with one line."""

from pathlib import Path

import pytest
import torch

from goodspeed.engine import engines
from goodspeed.engine.paged.chunks import Chunk
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
