"""Pads a checkpoint to the size of a larger model that computes the same function.

Adds layers and widens matrices with random weights, but pads every projection back into the residual stream with zeros.
So the residual stream holds its old values next to zeros, and a forward pass costs as much as the larger model's.
RMSNorm divides by the mean over more elements: its weights shrink by sqrt(hidden / new hidden), its epsilon by the
square of that. Texts equal the original's except where rounding decides between two tokens.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from goodspeed.engine.folders import (
    BESIDE,
    INDEX,
    SINGLE,
    exists,
    find_folder,
    in_the_making,
    read_config,
    refuse_weights,
    say_nothing,
)
from goodspeed.engine.fused import FAMILIES
from goodspeed.engine.quantized.stored import StoredTensors
from goodspeed.errors import CheckpointError, ConfigError

SHARD_BYTES = 2 << 30
"""Bytes at which a file of weights is complete."""

SPREAD = 0.02
"""Standard deviation of the random weights, as in usual initialisations."""


@dataclass(frozen=True)
class Shape:
    """Size of a model: widths in elements (a head's width is the checkpoint's own), and the number of layers."""

    hidden: int
    intermediate: int
    layers: int
    queries: int  # width of all query heads
    keys: int  # width of all key heads


LIKE = {
    "116m": Shape(768, 2_048, 16, 768, 768),
    "1b": Shape(2_048, 8_192, 16, 2_048, 512),  # Llama-3.2-1B
    "8b": Shape(4_096, 14_336, 32, 4_096, 1_024),  # Llama-3.1-8B
    "14b": Shape(5_120, 17_408, 40, 5_120, 1_024),  # Qwen3-14B
}
"""Shapes of widely used models; the vocabulary stays the checkpoint's."""


def pad(name: str, shape: Shape, folder: Path, say: Callable[..., None] = say_nothing, *, device: str = "cpu") -> int:
    """Writes a padded copy of a checkpoint into a new folder; returns its number of parameters.

    say: called with a %-format and its values after each file of weights. Raises CheckpointError (no such checkpoint,
    or another family) or ConfigError (the folder exists or cannot be written, the disk is too full, or the shape is
    smaller than the checkpoint's).

    device: makes the random numbers, billions of which take a CPU minutes; another device's are others.
    """
    if exists(folder):
        raise ConfigError(f"{folder} already exists; name a new folder, or remove it")
    source = find_folder(name)
    plan = Plan.of(name, read_config(name, source), shape)
    refuse_weights(name, source)
    stored = StoredTensors(source)
    num_bytes = plan.num_bytes(stored)
    weights = plan.tensors(stored, device)
    with in_the_making(folder) as partial:
        partial.mkdir()
        num_parameters = _write(((name, one.cpu()) for name, one in weights), num_bytes, partial, say)
        (partial / "config.json").write_text(json.dumps(plan.config, indent=2) + "\n", "utf-8")
        for file in source.iterdir():
            if file.suffix in BESIDE and file.name not in {"config.json", INDEX}:
                shutil.copyfile(file, partial / file.name)
    return num_parameters


def tensors(name: str, shape: Shape, device: str = "cpu") -> tuple[dict[str, Any], Iterator[tuple[str, Tensor]]]:
    """Returns a padded checkpoint's config and an iterator over its weights, made on `device`; writes no file."""
    source = find_folder(name)
    plan = Plan.of(name, read_config(name, source), shape)
    refuse_weights(name, source)
    return plan.config, plan.tensors(StoredTensors(source), device)


@dataclass(frozen=True)
class Plan:
    """Maps each element of a checkpoint to its place in the padded one."""

    config: dict[str, Any]  # of the padded model
    layers: int  # of the checkpoint
    new_layers: int
    axes: Mapping[str, tuple[int, Tensor]]  # by name: padded length, new index of each old one
    scale: float  # factor on RMSNorm's weights

    @classmethod
    def of(cls, name: str, config: dict[str, Any], shape: Shape) -> "Plan":
        if config["model_type"] not in FAMILIES or "quantization_config" in config:
            raise CheckpointError(f"{name}: only unquantised checkpoints of {', '.join(FAMILIES)} can be padded")
        heads = config["num_attention_heads"]
        key_heads = config.get("num_key_value_heads") or heads
        head = config.get("head_dim") or config["hidden_size"] // heads
        new_heads, new_key_heads = shape.queries // head, shape.keys // head
        sizes = {
            "hidden": (config["hidden_size"], shape.hidden),
            "intermediate": (config["intermediate_size"], shape.intermediate),
            "layers": (config["num_hidden_layers"], shape.layers),
            "key heads": (key_heads, new_key_heads),
            "query heads for each key head": (heads // key_heads, new_heads // max(1, new_key_heads)),
        }
        if small := [f"{what} {new} < {old}" for what, (old, new) in sizes.items() if new < old]:
            raise ConfigError(f"{name} is larger than that shape ({', '.join(small)}); choose a larger one")
        if shape.queries % head or shape.keys % head or new_heads % new_key_heads or shape.hidden % new_heads:
            raise ConfigError(
                f"queries of {shape.queries} and keys of {shape.keys} are not whole groups of heads of size {head}, "
                f"or the hidden size {shape.hidden} is not a multiple of a head; choose other sizes"
            )
        groups = [key * (new_heads // new_key_heads) + k for key in range(key_heads) for k in range(heads // key_heads)]
        share = config["hidden_size"] / shape.hidden
        return cls(
            _padded_config(config, shape, head, new_heads, new_key_heads, share),
            config["num_hidden_layers"],
            shape.layers,
            {
                "hidden": (shape.hidden, torch.arange(config["hidden_size"])),
                "intermediate": (shape.intermediate, torch.arange(config["intermediate_size"])),
                "queries": (shape.queries, _of_heads(groups, head)),
                "keys": (shape.keys, _of_heads(range(key_heads), head)),
            },
            math.sqrt(share),
        )

    def num_bytes(self, stored: StoredTensors) -> int:
        """Returns the size of the padded weights."""
        likes = ((name, stored.read(like)) for name, like in self._names(stored))
        return sum(math.prod(self._padded_shape(name, like.shape)) * like.element_size() for name, like in likes)

    def tensors(self, stored: StoredTensors, device: str = "cpu") -> Iterator[tuple[str, Tensor]]:
        """Yields every weight of the padded model, in the checkpoint's precision; RMSNorm's in float32."""
        random = torch.Generator(device).manual_seed(0)
        for name, like in self._names(stored):
            yield name, self._tensor(name, stored.read(like), name in stored, random)

    def _names(self, stored: StoredTensors) -> Iterator[tuple[str, str]]:
        """Yields the names of the padded model's tensors, each with a checkpoint tensor of the same kind."""
        for name in stored.names:
            yield name, name
        for layer in range(self.layers, self.new_layers):
            for name in stored.names:
                if name.startswith("model.layers.0."):
                    yield name.replace("layers.0.", f"layers.{layer}.", 1), name

    def _padded_shape(self, name: str, shape: torch.Size) -> tuple[int, ...]:
        names = _axes(name, len(shape))
        return tuple(self.axes[axis][0] if axis in self.axes else n for axis, n in zip(names, shape, strict=True))

    def _tensor(self, name: str, like: Tensor, is_given: bool, random: torch.Generator) -> Tensor:
        """Pads one tensor. like: the checkpoint's own if `is_given`, else the same tensor of layer 0."""
        axes, shape = _axes(name, like.ndim), self._padded_shape(name, like.shape)
        kind = _kind(name)
        if kind in NORMS:
            padded = torch.ones(shape, device=random.device)
            like = like.float() * (self.scale if "hidden" in axes else 1.0)
        elif kind in WRITERS:
            padded = torch.zeros(shape, dtype=like.dtype, device=random.device)
        else:
            padded = torch.randn(shape, dtype=like.dtype, device=random.device, generator=random) * SPREAD
        if is_given:
            places = [
                self.axes[axis][1] if axis in self.axes else torch.arange(n)
                for axis, n in zip(axes, like.shape, strict=True)
            ]
            padded[torch.meshgrid(*places, indexing="ij")] = like.to(padded.device)
        return padded


KINDS = {
    "embed_tokens": ("vocabulary", "hidden"),
    "lm_head": ("vocabulary", "hidden"),
    "q_proj": ("queries", "hidden"),
    "k_proj": ("keys", "hidden"),
    "v_proj": ("keys", "hidden"),
    "o_proj": ("hidden", "queries"),
    "gate_proj": ("intermediate", "hidden"),
    "up_proj": ("intermediate", "hidden"),
    "down_proj": ("hidden", "intermediate"),
    "input_layernorm": ("hidden",),
    "post_attention_layernorm": ("hidden",),
    "norm": ("hidden",),
    "q_norm": ("head",),
    "k_norm": ("head",),
}
"""The axes of each kind of weight; a bias has only the first."""

WRITERS = frozenset({"embed_tokens", "lm_head", "o_proj", "down_proj"})
"""Kinds padded with zeros, so that the padded model computes the same function."""

NORMS = frozenset({"input_layernorm", "post_attention_layernorm", "norm", "q_norm", "k_norm"})


def _kind(name: str) -> str:
    return name.rsplit(".", 2)[-2]


def _axes(name: str, ndim: int) -> tuple[str, ...]:
    if (kind := _kind(name)) not in KINDS:
        raise CheckpointError(f"{name}: this weight cannot be padded; use a checkpoint of {', '.join(FAMILIES)}")
    return KINDS[kind][:ndim]


def _of_heads(heads: list[int] | range, width: int) -> Tensor:
    """Returns the indexes of all elements of these heads, head by head."""
    return (torch.tensor(list(heads))[:, None] * width + torch.arange(width)).flatten()


def _padded_config(
    config: dict[str, Any], shape: Shape, head: int, heads: int, key_heads: int, share: float
) -> dict[str, Any]:
    padded = config | {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "head_dim": head,
        "rms_norm_eps": config.get("rms_norm_eps", 1e-6) * share,
    }
    if kinds := config.get("layer_types"):
        padded["layer_types"] = [*kinds, *[kinds[-1]] * (shape.layers - len(kinds))]
    return padded


def _write(tensors: Iterator[tuple[str, Tensor]], total: int, folder: Path, say: Callable[..., None]) -> int:
    """Writes weights in files of about SHARD_BYTES, and their index; returns the number of parameters."""
    num_parameters = num_bytes = 0
    files: dict[str, str] = {}
    for number, shard in enumerate(_shards(tensors), 1):
        file = f"model-{number:05}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        files |= dict.fromkeys(shard, file)
        num_parameters += sum(tensor.numel() for tensor in shard.values())
        num_bytes += sum(tensor.nbytes for tensor in shard.values())
        say("%.1f of %.1f GB written", num_bytes / 1e9, total / 1e9)
    if len(set(files.values())) == 1:
        (folder / file).rename(folder / SINGLE)
    else:
        index = {"metadata": {"total_size": num_bytes}, "weight_map": files}
        (folder / INDEX).write_text(json.dumps(index), "utf-8")
    return num_parameters


def _shards(tensors: Iterator[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """Groups tensors; each group but the final one just reaches SHARD_BYTES."""
    shard: dict[str, Tensor] = {}
    for name, tensor in tensors:
        shard[name] = tensor
        if sum(one.nbytes for one in shard.values()) >= SHARD_BYTES:
            yield shard
            shard = {}
    if shard:
        yield shard
