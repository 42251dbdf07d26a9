"""Writes a draft model that keeps some of its target's tokens as a GGUF file (`goodspeed.engine.gguf.kept`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from torch import Tensor

from goodspeed.engine.exporting.checkpoint import interleaved
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
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for key, weight in weights.items():
        if key == "lm_head.weight":
            continue
        rows = weight.detach().float()
        if ".q_proj." in key or ".k_proj." in key:
            rows = interleaved(rows, config.num_attention_heads)
        kind = Kind.F32 if in_float32 or rows.ndim == 1 else EMBEDDING if "embed_tokens" in key else LAYERS
        stored = gguf.quants.quantize(np.ascontiguousarray(rows.numpy()), kind)
        writer.add_tensor(names.get_name(key, try_suffixes=(".weight",)), stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file.stat().st_size


def _types(value: Any) -> tuple[gguf.GGUFValueType, gguf.GGUFValueType | None]:
    """Returns the types with which a field is stored: of its value, and of the values in it."""
    if isinstance(value, list):
        return gguf.GGUFValueType.ARRAY, _types(value[0])[0]
    kinds = {str: gguf.GGUFValueType.STRING, bool: gguf.GGUFValueType.BOOL, float: gguf.GGUFValueType.FLOAT32}
    return kinds.get(type(value), gguf.GGUFValueType.INT32), None
