"""Padded copies of the embedded models: the same texts, at the cost of a model of that size.

A forward pass of an embedded model takes mostly overhead, because its weights are so small. A copy has more layers and
wider matrices of random weights, but every projection back into the residual stream is padded with zeros. So that
stream holds its old values next to zeros. RMSNorm divides by the mean over more elements: its weights shrink by
sqrt(hidden / new hidden), its epsilon by the square of that. Texts equal the original's except where rounding decides
between two tokens.
"""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from goodspeed.engine.model_files import checkpoint_folder


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
        if file.suffix in checkpoint_folder.BESIDE and file.name != "config.json":
            shutil.copyfile(file, folder / file.name)


def _query_places(old: Any, new: Any) -> Tensor:
    """Returns the new index of each element of the old query heads; those of a key head stay together."""
    old_group, new_group = (one.num_attention_heads // one.num_key_value_heads for one in (old, new))
    heads = torch.arange(old.num_attention_heads)
    new_heads = heads // old_group * new_group + heads % old_group
    places: Tensor = (new_heads[:, None] * old.head_dim + torch.arange(old.head_dim)).flatten()
    return places
