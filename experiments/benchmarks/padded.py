"""Padded copies of the embedded models in the user's cache: the same texts, at the cost of a model of that size.

A forward pass of an embedded model takes mostly overhead, because its weights are so small. A copy has more layers and
wider matrices of random weights, but every projection back into the residual stream is padded with zeros. So that
stream holds its old values next to zeros. RMSNorm divides by the mean over more elements: its weights shrink by
sqrt(hidden / new hidden), its epsilon by the square of that. Texts equal the original's except where rounding decides
between two tokens.
"""

import os
import shutil
from collections.abc import Callable
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM

from goodspeed.engine import folders
from goodspeed.errors import ConfigError, reason


class Shape(NamedTuple):
    """Size of a Llama: widths in elements, and the number of layers. A head's width is the original's own."""

    hidden: int
    intermediate: int
    layers: int
    queries: int  # width of all query heads
    keys: int  # width of all key heads


LIKE = "116m"
"""Size of the benchmarks' target."""

SHAPES = {LIKE: Shape(768, 2_048, 16, 768, 768), "14b": Shape(5_120, 17_408, 40, 5_120, 1_024)}
"""The second is Qwen3-14B's; the vocabulary stays the model's own."""

WRITERS = ("embed_tokens", "o_proj", "down_proj")
"""Weights that write into the residual stream."""

VERSION = 2
"""Version of the padded copies. Increase it with each change that changes them; caches are rebuilt."""


def in_cache(
    model: str, like: str = LIKE, say: Callable[..., None] = folders.say_nothing, *, device: str = "cpu"
) -> Path:
    """Returns the folder of a padded copy in the user's cache; makes it the first time, which takes some seconds.

    say: called with a %-format and its values. device: of `pad`. ConfigError if the cache cannot be written.
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
        partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
        for abandoned in folder.parent.glob(f"{folder.name}.*.partial"):
            if not Path(f"/proc/{abandoned.suffixes[-2].strip('.')}").exists():  # its process was killed
                shutil.rmtree(abandoned, ignore_errors=True)
        try:
            pad(source, SHAPES[like], partial, device=device)
            partial.rename(folder)
        except (OSError, SafetensorError) as error:
            if not folders.exists(folder):  # else another process made it meanwhile
                raise ConfigError(f"{folder} cannot be written: {reason(error)}; choose another place") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


@torch.no_grad()
def pad(source: Path, shape: Shape, folder: Path, *, device: str = "cpu") -> None:
    """Writes a padded copy of a Llama with tied embeddings, which fits into the shape.

    device: makes the random numbers, billions of which take a CPU minutes; another device's are others.
    """
    original = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    old: Any = original.config
    share, head = old.hidden_size / shape.hidden, old.head_dim
    new = {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.queries // head,
        "num_key_value_heads": shape.keys // head,
        "rms_norm_eps": old.rms_norm_eps * share,
    }
    torch.manual_seed(0)
    with torch.device(device):
        padded = AutoModelForCausalLM.from_config(type(old).from_dict(old.to_dict() | new), dtype=original.dtype)
    queries, weights = _query_places(old, padded.config), dict(original.named_parameters())
    for name, weight in padded.named_parameters():
        kind, given = name.split(".")[-2], weights.get(name)
        if kind.endswith("norm"):
            weight.data, scale = weight.data.float(), share**0.5
        else:
            scale = 1.0
        if kind in WRITERS:
            weight.zero_()
        if given is not None:
            places = [torch.arange(size) for size in given.shape]
            if kind in ("q_proj", "o_proj"):
                places[kind == "o_proj"] = queries
            weight[torch.meshgrid(*places, indexing="ij")] = (given.to(weight.dtype) * scale).to(weight.device)
    padded.save_pretrained(folder, max_shard_size="2GB")
    for file in source.iterdir():
        if file.suffix in folders.BESIDE and file.name != "config.json":
            shutil.copyfile(file, folder / file.name)


def _query_places(old: Any, new: Any) -> Tensor:
    """Returns the new index of each element of the old query heads; those of a key head stay together."""
    old_group, new_group = (one.num_attention_heads // one.num_key_value_heads for one in (old, new))
    heads = torch.arange(old.num_attention_heads)
    new_heads = heads // old_group * new_group + heads % old_group
    places: Tensor = (new_heads[:, None] * old.head_dim + torch.arange(old.head_dim)).flatten()
    return places


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
