"""A GGUF model's sizes are those of its fields, or the file is refused."""

import math
from dataclasses import replace
from typing import Any

import pytest

from goodspeed.engine.gguf.file import read
from goodspeed.engine.gguf.shape import Shape
from goodspeed.errors import CheckpointError, UnsupportedModelError
from tests.engine import gguf_models


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"llama.embedding_length": math.inf}, "embedding_length is inf"),
        ({"llama.embedding_length": 1 << 24}, "embedding_length is 16777216"),
        ({"llama.attention.key_length": 1 << 50}, "key_length is 1125899906842624"),
        ({"llama.attention.head_count": 1 << 50}, "head_count is 1125899906842624"),
        ({"llama.embedding_length": 64.5}, "embedding_length is 64.5"),
        ({"llama.rope.freq_base": math.nan}, "freq_base is nan"),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}, "factor is 0.0"),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": "two"}, "factor is 'two'"),
    ],
)
def test_sizes_that_are_none(fields: dict[str, Any], told: str) -> None:
    file = read(gguf_models.made("F32"), "it")
    with pytest.raises(CheckpointError, match=rf"^it: .*its field llama.*{told}; get it again$"):
        Shape.of(replace(file, fields=file.fields | fields))


@pytest.mark.parametrize(("kind", "scale"), [("linear", 4.0), (None, 4.0), ("none", 1.0)])
def test_positions_are_scaled_linearly_unless_the_file_says_otherwise(kind: str | None, scale: float) -> None:
    file = read(gguf_models.made("F32"), "it")
    fields: dict[str, Any] = {"llama.rope.scaling.factor": 4.0} | ({"llama.rope.scaling.type": kind} if kind else {})
    scaled = Shape.of(replace(file, fields=file.fields | fields)).frequencies
    assert (scaled * scale).tolist() == Shape.of(file).frequencies.tolist()


def test_layers_of_different_sizes_are_refused() -> None:
    file = read(gguf_models.made("F32"), "it")
    with pytest.raises(UnsupportedModelError, match=r"^it: layers of different sizes \(llama.attention.head_count\)"):
        Shape.of(replace(file, fields=file.fields | {"llama.attention.head_count": [4, 2]}))
