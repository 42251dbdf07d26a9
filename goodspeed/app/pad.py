"""Makes a larger copy of a model that writes the same texts, to try speculative decoding at that size.

A forward pass of an embedded model takes mostly overhead, because its weights are so small. The padded copy computes
the same function, and takes as long as a model of its size.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b, file_digest
from pathlib import Path

from goodspeed.errors import ConfigError
from goodspeed.serving.events import Reporter

NAME = "pad"
HELP = "make a larger copy of a model that writes the same texts"
EXAMPLE = "goodspeed pad tiny-target --like 116m"

LIKE = "116m"
"""Size of the demo's target, and of the benchmarks'."""

VERSION = 1
"""Version of the padded copies. Increase it with each change of `padding.py` that changes them; caches are rebuilt."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="an embedded name, a folder or a hub name; Llama, Mistral, Qwen")
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=Path,
        nargs="?",
        help="where the copy goes; must not exist (default: the cache)",
    )
    parser.add_argument(
        "--like", default=LIKE, choices=("116m", "1b", "8b", "14b"), help=f"size to pad it to (default: {LIKE})"
    )
    parser.add_argument("--hidden", type=int, metavar="N", help="hidden size (default: that of --like)")
    parser.add_argument("--intermediate", type=int, metavar="N", help="width of the MLP (default: that of --like)")
    parser.add_argument("--layers", type=int, metavar="N", help="number of layers (default: that of --like)")


def run(namespace: argparse.Namespace) -> int:
    from goodspeed.engine.exporting import padding  # late: it imports torch

    like = padding.LIKE[namespace.like]
    sizes = {name: getattr(namespace, name) for name in ("hidden", "intermediate", "layers")}
    shape = replace(like, **{name: size for name, size in sizes.items() if size is not None})
    if namespace.hidden is not None:
        shape = replace(shape, queries=namespace.hidden, keys=namespace.hidden * like.keys // like.queries)
    say = Reporter("goodspeed").say
    if namespace.folder is None:
        if shape != like:
            raise ConfigError("a copy of your own sizes needs a FOLDER; the cache holds only copies by --like")
        print(in_cache(namespace.model, namespace.like, say))
        return 0
    num_parameters = padding.pad(namespace.model, shape, namespace.folder, say)
    print(f"{namespace.folder}: {num_parameters / 1e6:,.0f}M parameters; its texts are those of {namespace.model}")
    return 0


def in_cache(model: str, like: str = LIKE, say: Callable[..., None] | None = None, *, device: str = "cpu") -> Path:
    """Returns the folder of a padded copy in the user's cache; makes it the first time, which takes some seconds.

    say: called with a %-format and its values. device: `padding.pad`, whose errors it raises.
    """
    from goodspeed.engine import folders

    source = folders.find_folder(model).resolve()
    read = blake2b(f"{VERSION} {like}".encode(), digest_size=6)
    for file in sorted(source.iterdir()):
        if file.suffix in (".safetensors", *folders.BESIDE):
            read.update(_digest(file))
    cache = _cache()
    folder = cache / read.hexdigest() / f"{source.name}-{like}"
    if not folders.exists(folder):
        say = say or folders.say_nothing
        say("padding %s to %s parameters, once, in %s", model, like.upper(), cache)
        from goodspeed.engine.exporting import padding  # late: it imports torch

        try:
            padding.pad(model, padding.LIKE[like], folder, say, device=device)
        except ConfigError:
            if not folders.exists(folder):  # else another process made it meanwhile
                raise
    return folder


def _digest(file: Path) -> bytes:
    with file.open("rb") as stream:
        return file_digest(stream, "blake2b").digest()


def _cache() -> Path:
    """Returns the folder of the user's cache. ConfigError without a home folder."""
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen) / "goodspeed"
    try:
        return Path.home() / ".cache" / "goodspeed"
    except RuntimeError as error:
        raise ConfigError("there is no home folder for the cache; set XDG_CACHE_HOME") from error
