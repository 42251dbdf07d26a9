"""Padded copies of models in the user's cache: the same texts, at the cost of a model of that size.

A forward pass of an embedded model takes mostly overhead, because its weights are so small.
"""

import os
from collections.abc import Callable
from hashlib import blake2b, file_digest
from pathlib import Path

from goodspeed.engine import folders
from goodspeed.engine.exporting import padding
from goodspeed.errors import ConfigError

LIKE = "116m"
"""Size of the benchmarks' target."""

VERSION = 1
"""Version of the padded copies. Increase it with each change of `padding.py` that changes them; caches are rebuilt."""


def in_cache(
    model: str, like: str = LIKE, say: Callable[..., None] = folders.say_nothing, *, device: str = "cpu"
) -> Path:
    """Returns the folder of a padded copy in the user's cache; makes it the first time, which takes some seconds.

    say: called with a %-format and its values. device: `padding.pad`, whose errors it raises.
    """
    source = folders.find_folder(model).resolve()
    read = blake2b(f"{VERSION} {like}".encode(), digest_size=6)
    for file in sorted(source.iterdir()):
        if file.suffix in (".safetensors", *folders.BESIDE):
            read.update(_digest(file))
    cache = _cache()
    folder = cache / read.hexdigest() / f"{source.name}-{like}"
    if not folders.exists(folder):
        say("padding %s to %s parameters, once, in %s", model, like.upper(), cache)
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
