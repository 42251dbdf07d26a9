"""GGUF files for tests: embedded models, and small headers of any content."""

import struct
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from training.exporting import export

_FOLDER = TemporaryDirectory()  # for as long as this process runs


@cache
def made(name: str) -> str:
    """Returns the path of a file that all tests of this process share."""
    return str(write(name, Path(_FOLDER.name, f"{name}.gguf")))


def write(name: str, file: Path) -> Path:
    """Writes the model in float32."""
    export(name, file)
    return file


Fields = dict[str, tuple[int, Any]]
"""A header's fields: their keys, types by number, and values; an array's value is the type of its values, and these."""

TOKENS = ["a", "b", "Ġ", "ab", "<|im_end|>", "<tool>", "[PAD6]"]

FIELDS: Fields = {  # a small vocabulary
    "general.architecture": (8, "llama"),
    "llama.context_length": (4, 512),
    "tokenizer.ggml.model": (8, "gpt2"),
    "tokenizer.ggml.pre": (8, "smollm"),
    "tokenizer.ggml.tokens": (9, (8, TOKENS)),
    "tokenizer.ggml.token_type": (9, (5, [1, 1, 1, 1, 3, 4, 5])),
    "tokenizer.ggml.merges": (9, (8, ["a b"])),
    "tokenizer.ggml.eos_token_id": (4, 4),
}

Weight = tuple[tuple[int, ...], int, bytes]
"""Its shape, rows last as in such files, its storage type by number, and its bytes."""

WEIGHTS: dict[str, Weight] = {"token_embd.weight": ((32, 8), 3, bytes(8 * 20)), "norm.weight": ((32,), 0, bytes(128))}


def content(fields: Fields = FIELDS, weights: dict[str, Weight] = WEIGHTS, version: int = 3) -> bytes:
    """Returns the bytes of a file."""

    def text(value: str | bytes) -> bytes:
        encoded = value if isinstance(value, bytes) else value.encode()
        return struct.pack("<Q", len(encoded)) + encoded

    def value(kind: int, of: Any) -> bytes:
        if kind == 8:
            return text(of)
        if kind == 9:
            return struct.pack("<IQ", of[0], len(of[1])) + b"".join(value(of[0], each) for each in of[1])
        return struct.pack("<" + "BbHhIif?__Qqd"[kind], of)

    made = b"GGUF" + struct.pack("<IQQ", version, len(weights), len(fields))
    made += b"".join(text(key) + struct.pack("<I", kind) + value(kind, of) for key, (kind, of) in fields.items())
    data = b""
    for name, (shape, kind, stored) in weights.items():
        made += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += stored + bytes(-len(stored) % 32)
    return made + bytes(-len(made) % 32) + data
