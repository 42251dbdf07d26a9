"""Writes an embedded Llama as a GGUF file, for tests with llama.cpp."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
from safetensors.torch import load_file

from goodspeed.embedded import models

PRE_TOKENIZER = "starcoder"
"""llama.cpp's name of ours: digits alone, then GPT-2's pattern."""

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


_FOLDER = TemporaryDirectory()  # for as long as this process runs


@cache
def made(name: str) -> str:
    """Returns the path of a file that all tests of this process share."""
    return str(write(name, Path(_FOLDER.name, f"{name}.gguf")))


def write(name: str, file: Path) -> Path:
    """Writes the model in float32."""
    folder = models.path(name)
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    _add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()))
    for key, tensor in load_file(folder / "model.safetensors").items():
        values = tensor.float().numpy()
        if key.endswith("q_proj.weight"):
            values = _interleaved(values, config["num_attention_heads"])
        elif key.endswith("k_proj.weight"):
            values = _interleaved(values, config["num_key_value_heads"])
        writer.add_tensor(_name(key), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: dict[str, Any]) -> None:
    special = {token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    kinds = [gguf.TokenType.CONTROL if number in special else gguf.TokenType.NORMAL for number in range(len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def _interleaved(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Returns the rows in llama.cpp's order: it rotates neighbouring pairs, transformers the two halves of a head."""
    half = values.shape[0] // num_heads // 2
    return values.reshape(num_heads, 2, half, -1).swapaxes(1, 2).reshape(values.shape)


def _name(key: str) -> str:
    stem = key.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, number, part = stem.split(".", 3)
        return f"blk.{number}.{NAMES[part]}.weight"
    return f"{NAMES[stem]}.weight"
