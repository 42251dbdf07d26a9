"""Reads a GGUF model's sizes from its header, and refuses what OpenVINO's graph of such files would compute wrongly.

Imports no OpenVINO, so that a node can refuse a file before it loads anything.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goodspeed.engine.gguf.file import GgufFile, dequantised
from goodspeed.errors import CheckpointError, UnsupportedModelError

FAMILIES = ("llama", "qwen2", "qwen3")

SCALES = ("rope.scale_linear", "attention.scale", "logit_scale", "residual_scale", "embedding_scale")
"""Fields of factors that this graph leaves out."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model."""

    layers: int
    hidden: int
    inner: int
    heads: int
    key_heads: int
    head: int
    num_rows: int  # of the embedding and the output matrix
    epsilon: float
    frequencies: NDArray[np.float32]  # [head / 2] angle of each pair at position 1

    @classmethod
    def of(cls, file: GgufFile) -> "Shape":
        """Reads the sizes; UnsupportedModelError for what this graph would compute wrongly."""
        refuse(file)
        number, count = file.number, file.count
        hidden, heads = count("embedding_length"), count("attention.head_count")
        key_heads = count("attention.head_count_kv", heads)
        head = count("attention.key_length", max(1, hidden // heads))
        if any(count(key, head) != head for key in ("attention.value_length", "rope.dimension_count")) or head % 2:
            raise UnsupportedModelError(f"{file.name}: heads rotated in part are not supported; use another model")
        if heads % key_heads:
            what = f"{file.name}: {heads} heads cannot share {key_heads} heads of keys"
            raise CheckpointError(f"{what}; get the file again")
        is_linear = file.fields.get(f"{file.architecture}.rope.scaling.type", "linear") == "linear"  # as in llama.cpp
        factor = number("rope.scaling.factor", 1.0) if is_linear else 1.0
        return cls(
            layers=count("block_count"),
            hidden=hidden,
            inner=count("feed_forward_length"),
            heads=heads,
            key_heads=key_heads,
            head=head,
            num_rows=file.num_rows,
            epsilon=number("attention.layer_norm_rms_epsilon"),
            frequencies=_frequencies(file, head, number("rope.freq_base", 10_000.0), factor),
        )

    def of_weight(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a weight or bias in this model."""
        queries, keys = self.heads * self.head, self.key_heads * self.head
        which, kind = name.split(".")[-2:]
        outputs, *inputs = {
            "token_embd": (self.num_rows, self.hidden),
            "attn_q": (queries, self.hidden),
            "attn_k": (keys, self.hidden),
            "attn_v": (keys, self.hidden),
            "attn_output": (self.hidden, queries),
            "ffn_gate": (self.inner, self.hidden),
            "ffn_up": (self.inner, self.hidden),
            "ffn_down": (self.hidden, self.inner),
            "output": (self.num_rows, self.hidden),
            "attn_q_norm": (self.head,),
            "attn_k_norm": (self.head,),
        }.get(which, (self.hidden,))
        return (outputs,) if kind == "bias" else (outputs, *inputs)


def refuse(file: GgufFile) -> None:
    """Raises UnsupportedModelError for a family, or a property of it, that this graph does not have."""
    family = file.architecture
    if family not in FAMILIES:
        what = f"the architecture {ascii(family)[:80]} is not supported for GGUF files"
        raise UnsupportedModelError(f"{file.name}: {what}; use one of {', '.join(FAMILIES)}, or a checkpoint folder")
    scaling = file.fields.get(f"{family}.rope.scaling.type", "none")
    if scaling not in ("none", "linear", "llama3"):
        what = f"the position scaling {ascii(scaling)[:40]}"
    elif file.fields.get(f"{family}.expert_count", 0):
        what = "a mixture of experts"
    elif file.fields.get(f"{family}.attention.sliding_window"):
        what = "a sliding window"
    elif scales := [key for key in SCALES if file.fields.get(f"{family}.{key}", 1) not in (0, 1)]:
        what = f"the field {family}.{scales[0]}"
    else:
        return
    raise UnsupportedModelError(f"{file.name}: {what} is not supported for GGUF files; use a checkpoint folder")


def _frequencies(file: GgufFile, head: int, base: float, factor: float) -> NDArray[np.float32]:
    found = base ** -(np.arange(0, head, 2, dtype=np.float64) / head)
    if (factors := file.tensors.get("rope_freqs.weight")) is not None:  # Llama 3.1's scaling
        if factors.shape != found.shape:
            raise CheckpointError(f"{file.name}: rope_freqs.weight has the shape {list(factors.shape)}; get it again")
        found /= dequantised(factors)
    return (found / factor).astype(np.float32)
