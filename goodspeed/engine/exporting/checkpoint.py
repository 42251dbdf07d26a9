"""Writes a checkpoint of Llama's architecture as a GGUF file: weights, tokenizer and settings in one."""

import math
from collections.abc import Callable, Iterator
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
from goodspeed.engine.folders import exists, find_folder, in_the_making, read_config, refuse_weights, say_nothing
from goodspeed.engine.fused import FAMILIES
from goodspeed.engine.quantized.stored import StoredTensors
from goodspeed.engine.support import expected_windows, naming, rope_types
from goodspeed.errors import ConfigError, UnsupportedModelError

KINDS = {"f32": Kind.F32, "f16": Kind.F16, "q8_0": Kind.Q8_0}
"""Storage types of matrices; vectors are always float32."""

SAY_BYTES = 1 << 30
"""Bytes between two progress reports."""


def export(name: str, file: Path, dtype: str, say: Callable[..., None] = say_nothing) -> int:
    """Writes a checkpoint as one file; returns its size in bytes.

    Omits rows beyond the tokenizer's ids: the engine never draws these ids. say: called with a %-format and
    its values. Raises CheckpointError (no such checkpoint, or one that llama.cpp would compute wrongly) or ConfigError
    (the file exists or cannot be written, or the disk is too full).
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
        weights = _Weights(StoredTensors(folder), config, architecture, KINDS[dtype], len(vocabulary.tokens))
        with in_the_making(file, weights.num_bytes, "a smaller --dtype") as partial:
            _write(partial, architecture, config, vocabulary, weights, say)
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


class _Weights:
    """The tensors of a file, each converted when it is written."""

    def __init__(self, stored: StoredTensors, config: Any, architecture: str, kind: Kind, num_tokens: int) -> None:
        self._stored, self._config, self._num_tokens = stored, config, num_tokens
        self.matrices = kind
        self._is_llama = architecture == "llama"
        place = gguf.MODEL_ARCH[architecture.upper()]
        self._names = gguf.get_tensor_name_map(place, config.num_hidden_layers)
        self.tensors = {self._name(name): name for name in stored.names if not self._is_left_out(name)}
        self.num_bytes = sum(self.stored_bytes(name) for name in self.tensors.values())

    def _is_left_out(self, name: str) -> bool:
        return name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and self._config.tie_word_embeddings)

    def _name(self, name: str) -> str:
        found = self._names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise UnsupportedModelError(f"{name}: llama.cpp does not have this weight; use another model")
        return str(found)

    def shape(self, name: str) -> tuple[int, ...]:
        rows, *rest = self._stored.shape(name)
        if _is_by_token(name) and rows < self._num_tokens:
            what = f"{name} has {rows} rows, but the tokenizer has {self._num_tokens} tokens"
            raise UnsupportedModelError(f"{what}; use the tokenizer that belongs to the model")
        return (min(rows, self._num_tokens) if _is_by_token(name) else rows, *rest)

    def kind(self, name: str) -> Kind:
        shape = self.shape(name)
        if len(shape) == 1:
            return Kind.F32
        return (
            Kind.F16
            if self.matrices == Kind.Q8_0 and shape[-1] % gguf.GGML_QUANT_SIZES[Kind.Q8_0][0]
            else self.matrices
        )

    def stored_bytes(self, name: str) -> int:
        block, num_bytes = gguf.GGML_QUANT_SIZES[self.kind(name)]
        return math.prod(self.shape(name)) // int(block) * int(num_bytes)

    def read(self, name: str) -> np.ndarray[Any, Any]:
        tensor = self._stored.read(name)[: self.shape(name)[0]].float()
        config = self._config
        if self._is_llama and ".q_proj." in name:
            tensor = interleaved(tensor, config.num_attention_heads)
        elif self._is_llama and ".k_proj." in name:
            tensor = interleaved(tensor, config.num_key_value_heads)
        stored: np.ndarray[Any, Any] = gguf.quants.quantize(np.ascontiguousarray(tensor.numpy()), self.kind(name))
        return stored


def _is_by_token(name: str) -> bool:
    return name.startswith(("model.embed_tokens.", "lm_head."))


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


def _write(
    file: Path, architecture: str, config: Any, vocabulary: GgufVocabulary, weights: _Weights, say: Callable[..., None]
) -> None:
    writer = gguf.GGUFWriter(file, architecture)
    _add_settings(writer, config, len(vocabulary.tokens), weights)
    vocabulary.add_to(writer)
    factors = _rope_factors(config)
    if factors is not None:
        writer.add_tensor_info("rope_freqs.weight", factors.shape, factors.dtype, factors.nbytes)
    for new, name in weights.tensors.items():
        number = weights.stored_bytes(name)
        writer.add_tensor_info(new, weights.shape(name), np.dtype(np.float32), number, raw_dtype=weights.kind(name))
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in _with_progress(([] if factors is None else [factors]), weights, say):
            writer.write_tensor_data(tensor)
    finally:
        writer.close()


def _with_progress(
    first: list[np.ndarray[Any, Any]], weights: _Weights, say: Callable[..., None]
) -> Iterator[np.ndarray[Any, Any]]:
    yield from first
    num_bytes = told = 0
    for name in weights.tensors.values():
        yield weights.read(name)
        num_bytes += weights.stored_bytes(name)
        if num_bytes - told >= SAY_BYTES:
            told = num_bytes
            say("%.1f of %.1f GB written", num_bytes / 1e9, weights.num_bytes / 1e9)


def _add_settings(writer: gguf.GGUFWriter, config: Any, num_tokens: int, weights: _Weights) -> None:
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
    writer.add_vocab_size(num_tokens)
    types = {Kind.F32: gguf.LlamaFileType.ALL_F32, Kind.F16: gguf.LlamaFileType.MOSTLY_F16}
    writer.add_file_type(types.get(weights.matrices, gguf.LlamaFileType.MOSTLY_Q8_0))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
