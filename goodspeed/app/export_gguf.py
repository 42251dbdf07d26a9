"""Writes a model as a GGUF file: for the engine on OpenVINO, or for llama.cpp."""

import argparse
from pathlib import Path

from goodspeed.errors import ConfigError

NAME = "export-gguf"
HELP = "write a model as a GGUF file"
EXAMPLE = "goodspeed export-gguf tiny-draft-s tiny-draft-s.gguf"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="an embedded name, a folder or a hub name; Llama, Mistral, Qwen")
    parser.add_argument("file", metavar="FILE", type=Path, help="where it goes, *.gguf; must not exist")
    parser.add_argument(
        "--dtype", default="f32", choices=("f32", "f16", "q8_0"), help="how matrices are stored (default: f32)"
    )


def run(namespace: argparse.Namespace) -> int:
    if namespace.file.suffix != ".gguf":
        raise ConfigError(f"{namespace.file} does not end in .gguf, by which such files are known; name it so")
    from goodspeed.engine.exporting.checkpoint import export  # late: it imports torch

    num_bytes = export(namespace.model, namespace.file, namespace.dtype)
    print(f"{namespace.file}: {num_bytes / 1e6:,.1f} MB; {namespace.model} in {namespace.dtype}, with its tokenizer")
    return 0
