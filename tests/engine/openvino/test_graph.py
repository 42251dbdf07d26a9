"""The graph of a GGUF file computes transformers' logits of the same weights."""

from functools import cache
from pathlib import Path

import pytest
from torch import Tensor

from goodspeed.engine import engines
from goodspeed.engine.paged.chunks import Chunk
from tests.engine import gguf_models

TOKENS = [(7 * i * i + i) % 250 for i in range(60)]


@cache
def expected(file: Path, family: str) -> Tensor:
    return gguf_models.expected(file, family, TOKENS)


def differences(file: Path, family: str, dtype: str) -> tuple[float, float]:
    """Returns the largest, and the mean square's root, of the logits' differences, both relative to the logits'."""
    engine = engines.start(engines.load(str(file), dtype=dtype), num_pages=2)
    found, wanted = engine.forward([Chunk("a", TOKENS, len(TOKENS))]), expected(file, family)
    away = found - wanted
    return float(away.abs().max() / wanted.abs().max()), float(away.square().mean().sqrt() / wanted.std())


FAMILIES = [("F32", family, 1e-4) for family in gguf_models.CONFIGS]
FAMILIES += [("Q4_1", family, 1e-3) for family in ("qwen2", "qwen2, tied", "qwen3")]
"""Q4_1: minima beside biases and in embeddings."""


@pytest.mark.parametrize(("stored", "family", "most"), FAMILIES)
def test_every_family_in_float32(stored: str, family: str, most: float) -> None:
    assert differences(gguf_models.made(stored, family), family, "float32")[0] < most


@pytest.mark.parametrize("stored", list(gguf_models.TYPES))
def test_every_storage_type(stored: str) -> None:
    """With float32 the weights are those of the file; else activations, and weights of some types, have 8 bits."""
    family = gguf_models.TYPES[stored][0]
    file = gguf_models.made(stored)
    assert differences(file, family, "float32")[0] < 1e-3
    assert differences(file, family, "auto")[1] < 0.15
