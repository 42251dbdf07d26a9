"""Writes models of Llama's architecture as GGUF files, for llama.cpp and for the engine on OpenVINO.

`python -m training.exporting MODEL FILE.gguf [f32|f16|q8_0]` writes an embedded model or a checkpoint folder. For other
makers' models llama.cpp's script `convert_hf_to_gguf` is the better tool: it knows their tokenizers.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from goodspeed.engine.gguf.file import KEPT, MASK, NEAREST, PARALLEL, GgufFile
from goodspeed.engine.gguf.pruned_vocabulary import KeptTokens
from goodspeed.engine.gguf.vocabulary import GPT2, SPLITS
from goodspeed.engine.model_files.checkpoint_folder import find_folder
from goodspeed.engine.model_files.config_checks import expected_windows, rope_types
from goodspeed.engine.tokenizing.text import PROBE, num_shared
from goodspeed.engine.torch.checkpoints import load_vocabulary, parallel
from goodspeed.engine.torch.fused_llama import FAMILIES
from goodspeed.errors import GoodSpeedError, UnsupportedModelError

KINDS = {"f32": Kind.F32, "f16": Kind.F16, "q8_0": Kind.Q8_0}
"""Storage types of matrices; vectors are always float32."""

LAYERS, EMBEDDING = Kind.Q8_0, Kind.Q5_0
"""Storage types of a draft model. The embedding is as large as the layers together, and loses less by fewer bits."""

PRE_TOKENIZERS = {steps: name for name, steps in reversed(SPLITS.items())}
"""llama.cpp's name of each pre-tokenizer, by the patterns that split a text before the merges."""

SPECIAL = ("bos", "eos", "unk", "pad")


def export(name: str, file: Path, dtype: str = "f32") -> None:
    """Writes a checkpoint with its tokenizer as one file, without rows beyond the tokenizer's ids and its mask's.

    UnsupportedModelError for what llama.cpp would compute or encode otherwise.
    """
    folder = find_folder(name)
    config: Any = AutoConfig.from_pretrained(folder)
    architecture = "llama" if config.model_type == "mistral" else str(config.model_type)
    ropes = ("default", "linear", "llama3") if architecture == "llama" else ("default",)
    fits = config.model_type in FAMILIES and config.hidden_act == "silu" and {*rope_types(config)} <= {*ropes}
    if not fits or any(expected_windows(config)) or hasattr(config, "quantization_config"):
        raise UnsupportedModelError(f"{name}: llama.cpp would compute it otherwise")
    tokenizer = load_vocabulary(name).tokenizer
    num_tokens = num_shared(tokenizer, config.vocab_size)
    if num_tokens is None:
        raise UnsupportedModelError(f"{name}: its tokenizer does not belong to the model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    weights: dict[str, Tensor] = model.state_dict()
    mask_id, num_parallel = parallel(name, config)
    num_rows = num_tokens if mask_id is None else max(num_tokens, mask_id + 1)
    for matrix in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[matrix] = weights[matrix][:num_rows]
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_vocab_size(num_rows)
    if mask_id is not None:
        writer.add_uint32(MASK, mask_id)
        writer.add_uint32(PARALLEL, num_parallel)
    _add_tokenizer(writer, tokenizer, num_rows)
    if (factors := _rope_factors(config)) is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    _write(writer, config, weights, KINDS[dtype])


def write_kept(
    file: Path,
    name: str,
    config: Any,
    weights: Mapping[str, Tensor],
    kept: KeptTokens,
    target: GgufFile,
    *,
    in_float32: bool = False,
) -> int:
    """Writes a Llama with tied embeddings that keeps some of its target's tokens; returns the file's size in bytes.

    name: of the model. config, weights: of transformers, with a row for each kept token. The file has the tokenizer of
    the target.
    """
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name(name)
    for key, value in target.fields.items():
        if key.startswith("tokenizer."):
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    for key, numbers in ((KEPT, kept.tokens), (NEAREST, kept.nearest)):
        writer.add_key_value(key, numbers.tolist(), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT16)
    _write(writer, config, weights, *((Kind.F32,) if in_float32 else (LAYERS, EMBEDDING)))
    return file.stat().st_size


# -- weights -----------------------------------------------------------------------------------------------------------


def _write(
    writer: gguf.GGUFWriter, config: Any, weights: Mapping[str, Tensor], matrices: Kind, embedding: Kind | None = None
) -> None:
    """Writes sizes and weights, by transformers' names, and closes the file. embedding: its own storage type."""
    _add_sizes(writer, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[writer.arch.upper()], config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    if writer.arch != "llama":
        heads = {}  # the others' heads are rotated as in transformers
    for name, weight in weights.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise UnsupportedModelError(f"{name}: llama.cpp does not have this weight")
        which, rows = name.split(".")[-2], weight.detach().float()
        rows = _interleaved(rows, heads[which]) if which in heads else rows
        kind = Kind.F32 if rows.ndim == 1 else (embedding or matrices) if which == "embed_tokens" else matrices
        if rows.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
            kind = Kind.F16
        writer.add_tensor(found, gguf.quants.quantize(np.ascontiguousarray(rows.numpy()), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _interleaved(rows: Tensor, num_heads: int) -> Tensor:
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


# -- tokenizer ---------------------------------------------------------------------------------------------------------


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, num_tokens: int) -> None:
    """Adds a byte-level BPE tokenizer; UnsupportedModelError for any other."""
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    outer = described["pre_tokenizer"] or {"type": "none"}
    steps = tuple(map(_step, outer.get("pretokenizers", [outer])))
    if described["model"]["type"] != "BPE" or steps not in PRE_TOKENIZERS:
        raise UnsupportedModelError(f"llama.cpp's name of its pre-tokenizer ({' then '.join(steps)[:120]}) is unknown")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZERS[steps])
    tokens = [f"[PAD{number}]" for number in range(num_tokens)]
    kinds = [gguf.TokenType.UNUSED] * num_tokens  # of an id without a token, which is never part of a text
    for token, number in described["model"]["vocab"].items():
        if number < num_tokens:
            tokens[number], kinds[number] = token, gguf.TokenType.NORMAL
    for one in (one for one in described["added_tokens"] if one["id"] < num_tokens):
        tokens[one["id"]] = one["content"]
        kinds[one["id"]] = gguf.TokenType.CONTROL if one["special"] else gguf.TokenType.USER_DEFINED
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = described["model"]["merges"]
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    special = {name: getattr(tokenizer, f"{name}_token_id") for name in SPECIAL}
    for name, number in special.items():
        if number is not None and number < num_tokens:
            getattr(writer, f"add_{name}_token_id")(number)
    if special["bos"] is None and special["eos"] is not None:
        writer.add_bos_token_id(special["eos"])  # else llama.cpp takes id 11, whatever that is
    ids = tokenizer(PROBE)["input_ids"]
    writer.add_add_bos_token(special["bos"] is not None and ids[0] == special["bos"])
    writer.add_add_eos_token(False)
    if isinstance(tokenizer.chat_template, str):
        writer.add_chat_template(tokenizer.chat_template)


def _step(step: dict[str, Any]) -> str:
    match step:
        case {"type": "Digits", "individual_digits": True}:
            return "digits"
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": bool(splits)}:
            return GPT2 if splits else "bytes"
        case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": str(regex)}}:
            return regex
    return str(step["type"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m training.exporting", description="Writes a model as a GGUF file.")
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("kind", nargs="?", choices=KINDS, default="f32", help="storage type (default: f32)")
    asked = parser.parse_args()
    try:
        export(asked.model, asked.file, asked.kind)
    except GoodSpeedError as error:
        sys.exit(str(error))
