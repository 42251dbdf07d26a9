"""The graph of a GGUF file computes transformers' logits of the same weights."""

from pathlib import Path

import pytest

from goodspeed.engine import engines
from goodspeed.engine.paged.chunks import Chunk
from tests.engine import gguf_models

TOKENS = [(7 * i * i + i) % 250 for i in range(60)]


def differences(file: Path, family: str, dtype: str) -> tuple[float, float]:
    """Returns the largest, and the mean square's root, of the logits' differences, both relative to the logits'."""
    engine = engines.start(engines.load(str(file), dtype=dtype), num_pages=2)
    found, wanted = engine.forward([Chunk("a", TOKENS, len(TOKENS))]), gguf_models.expected(file, family, TOKENS)
    away = found - wanted
    return float(away.abs().max() / wanted.abs().max()), float(away.square().mean().sqrt() / wanted.std())


@pytest.mark.parametrize("family", list(gguf_models.CONFIGS))
def test_every_family_in_float32(family: str) -> None:
    assert differences(gguf_models.made("F32", family), family, "float32")[0] < 1e-4


@pytest.mark.parametrize("stored", list(gguf_models.TYPES))
def test_every_storage_type(stored: str) -> None:
    """With float32 the weights are those of the file; else activations, and weights of some types, have 8 bits."""
    family = gguf_models.TYPES[stored][0]
    file = gguf_models.made(stored)
    assert differences(file, family, "float32")[0] < 1e-3
    assert differences(file, family, "auto")[1] < 0.15


@pytest.mark.parametrize("family", ["qwen2", "qwen2, tied", "qwen3"])
def test_minima_beside_biases_and_in_embeddings(family: str) -> None:
    assert differences(gguf_models.made("Q4_1", family), family, "float32")[0] < 1e-3
