"""Writes a draft model that keeps some of its target's tokens as a GGUF file (`goodspeed.engine.gguf.kept`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
from gguf import GGMLQuantizationType as Kind
from torch import Tensor

from goodspeed.engine.exporting import checkpoint
from goodspeed.engine.gguf.file import KEPT, NEAREST, GgufFile
from goodspeed.engine.gguf.kept import KeptTokens

LAYERS, EMBEDDING = Kind.Q8_0, Kind.Q5_0
"""Storage types. The embedding is as large as the layers together, and loses less by fewer bits."""


def write(
    file: Path,
    name: str,
    config: Any,
    weights: Mapping[str, Tensor],
    kept: KeptTokens,
    target: GgufFile,
    *,
    in_float32: bool = False,
) -> int:
    """Writes a Llama with tied embeddings, and its target's tokenizer; returns the file's size in bytes.

    name: of the model. config, weights: of transformers, with a row for each kept token.
    """
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name(name)
    for key, value in target.fields.items():
        if key.startswith("tokenizer."):
            writer.add_key_value(key, value, *_types(value))
    for key, numbers in ((KEPT, kept.tokens), (NEAREST, kept.nearest)):
        writer.add_key_value(key, numbers.tolist(), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT16)
    rows = [(key, weight.detach()) for key, weight in weights.items() if key != "lm_head.weight"]
    checkpoint.write(writer, config, rows, *((Kind.F32,) if in_float32 else (LAYERS, EMBEDDING)))
    return file.stat().st_size


def _types(value: Any) -> tuple[gguf.GGUFValueType, gguf.GGUFValueType | None]:
    """Returns the types with which a field is stored: of its value, and of the values in it."""
    if isinstance(value, list):
        return gguf.GGUFValueType.ARRAY, _types(value[0])[0]
    kinds = {str: gguf.GGUFValueType.STRING, bool: gguf.GGUFValueType.BOOL, float: gguf.GGUFValueType.FLOAT32}
    return kinds.get(type(value), gguf.GGUFValueType.INT32), None
