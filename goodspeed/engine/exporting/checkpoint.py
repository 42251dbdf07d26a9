"""Writes a checkpoint of Llama's architecture as a GGUF file: weights, tokenizer and settings in one."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from torch import Tensor
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from goodspeed.engine.checkpoints import load_tokenizer
from goodspeed.engine.exporting.vocabulary import GgufVocabulary
from goodspeed.engine.folders import exists, find_folder, in_the_making, read_config, refuse_weights
from goodspeed.engine.fused import FAMILIES
from goodspeed.engine.quantized.stored import StoredTensors
from goodspeed.engine.support import expected_windows, naming, rope_types
from goodspeed.errors import ConfigError, UnsupportedModelError

KINDS = {"f32": Kind.F32, "f16": Kind.F16, "q8_0": Kind.Q8_0}
"""Storage types of matrices; vectors are always float32."""


def export(name: str, file: Path, dtype: str) -> int:
    """Writes a checkpoint as one file; returns its size in bytes.

    Omits rows beyond the tokenizer's ids: the engine never draws these ids. Raises CheckpointError (no such checkpoint,
    or one that llama.cpp would compute wrongly) or ConfigError (the file exists or cannot be written).
    """
    if exists(file):
        raise ConfigError(f"{file} already exists; name a new file, or remove it")
    folder = find_folder(name)
    refuse_weights(name, folder)
    raw = read_config(name, folder)
    if raw["model_type"] not in FAMILIES or "quantization_config" in raw:
        raise UnsupportedModelError(f"{name}: only unquantised checkpoints of {', '.join(FAMILIES)} can be exported")
    config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with naming(name):
        architecture = _architecture(config)
        vocabulary = GgufVocabulary.of(load_tokenizer(name), config.vocab_size)
        weights = _weights(StoredTensors(folder), config, len(vocabulary.tokens))
        with in_the_making(file) as partial:
            writer = gguf.GGUFWriter(partial, architecture, use_temp_file=True)
            writer.add_vocab_size(len(vocabulary.tokens))
            vocabulary.add_to(writer)
            if (factors := _rope_factors(config)) is not None:
                writer.add_tensor("rope_freqs.weight", factors)
            write(writer, config, weights, KINDS[dtype])
    return file.stat().st_size


def _architecture(config: Any) -> str:
    """Returns llama.cpp's name of the architecture. UnsupportedModelError if llama.cpp would compute it differently."""
    architecture = "llama" if config.model_type == "mistral" else str(config.model_type)
    (rope,) = set(rope_types(config))
    if config.hidden_act != "silu":
        raise UnsupportedModelError(f"hidden_act {config.hidden_act!r}: llama.cpp has only silu; use another model")
    if any(expected_windows(config)):
        raise UnsupportedModelError("sliding windows: llama.cpp gives this architecture full attention; use another")
    if rope not in (("default", "linear", "llama3") if architecture == "llama" else ("default",)):
        raise UnsupportedModelError(f"RoPE type {rope!r} cannot be exported for {architecture}; use another model")
    return architecture


def write(
    writer: gguf.GGUFWriter,
    config: Any,
    weights: Iterable[tuple[str, Tensor]],
    matrices: Kind,
    embedding: Kind | None = None,
) -> None:
    """Writes sizes and weights of Llama's architecture, by transformers' names, and closes the file.

    matrices: their storage type; vectors are always float32. embedding: another one of the embedding.
    """
    _add_sizes(writer, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[writer.arch.upper()], config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    if writer.arch != "llama":
        heads = {}  # the others' heads are rotated as in transformers
    try:
        for name, weight in weights:
            found = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if found is None:
                raise UnsupportedModelError(f"{name}: llama.cpp does not have this weight; use another model")
            which = name.split(".")[-2]
            rows = interleaved(weight.float(), heads[which]) if which in heads else weight.float()
            kind = Kind.F32 if rows.ndim == 1 else (embedding or matrices) if which == "embed_tokens" else matrices
            if rows.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
                kind = Kind.F16
            stored = gguf.quants.quantize(np.ascontiguousarray(rows.numpy()), kind)
            writer.add_tensor(found, stored, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
        if writer.temp_file is not None:
            writer.temp_file.close()


def _weights(stored: StoredTensors, config: Any, num_tokens: int) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of a checkpoint, with rows for so many tokens."""
    for name in stored.names:
        if name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and config.tie_word_embeddings):
            continue
        weight = stored.read(name)
        if name.startswith(("model.embed_tokens.", "lm_head.")):
            if len(weight) < num_tokens:
                what = f"{name} has {len(weight)} rows, but the tokenizer has {num_tokens} tokens"
                raise UnsupportedModelError(f"{what}; use the tokenizer that belongs to the model")
            weight = weight[:num_tokens]
        yield name, weight


def interleaved(rows: Tensor, num_heads: int) -> Tensor:
    """Orders rows for llama.cpp's Llama, which rotates neighbouring pairs; transformers rotates halves of a head."""
    return rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def _rope_factors(config: Any) -> np.ndarray[Any, Any] | None:
    """Returns the divisor of each rotary frequency [head_dim / 2]; None: no divisors."""
    (kind,) = set(rope_types(config))
    if kind == "default":
        return None
    frequencies, _ = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    plain = config.rope_parameters["rope_theta"] ** -(torch.arange(0, config.head_dim, 2) / config.head_dim)
    return np.asarray((plain / frequencies).numpy(), np.float32)


def _add_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
