"""Embedded models as GGUF files, for tests with llama.cpp."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from goodspeed.engine.exporting.checkpoint import export

_FOLDER = TemporaryDirectory()  # for as long as this process runs


@cache
def made(name: str) -> str:
    """Returns the path of a file that all tests of this process share."""
    return str(write(name, Path(_FOLDER.name, f"{name}.gguf")))


def write(name: str, file: Path) -> Path:
    """Writes the model in float32."""
    export(name, file, "f32")
    return file
