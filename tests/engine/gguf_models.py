"""Small random GGUF models of each family and storage type, and the same weights in transformers."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from goodspeed.engine.gguf.file import KEPT, NEAREST
from tests.engine.conftest import SMALL, make_model, make_tokenizer
from training.exporting import export

OWN = {"hidden_size": 64, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 258}
SIZES: dict[str, Any] = SMALL | OWN
BLOCK_OF_256 = SIZES | {"hidden_size": 256, "intermediate_size": 256, "initializer_range": 0.1}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 1e4}

CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama, wide heads": LlamaConfig(**SIZES, head_dim=32),
    "llama, linear": LlamaConfig(**SIZES, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}),
    "llama, llama3": LlamaConfig(**SIZES, rope_parameters=LLAMA3 | {"original_max_position_embeddings": 64}),
    "llama, blocks of 256": LlamaConfig(**BLOCK_OF_256),
    "llama, no whole blocks": LlamaConfig(**SIZES | {"hidden_size": 40, "intermediate_size": 72, "head_dim": 10}),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2, tied": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=32),
}

MIXED = {"attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q6_K", "": "Q4_K"}
"""As files of llama.cpp's type Q4_K_M have them."""

ODD = {"attn_q": "Q4_1", "attn_k": "Q8_0", "attn_v": "Q6_K", "ffn_gate": "Q4_0", "ffn_up": "Q5_0", "": "F16"}
"""Every layer with the same input in another type."""

TYPES: dict[str, tuple[str, dict[str, str]]] = {
    **{kind: ("llama", {"": kind}) for kind in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_1", "Q8_0")},
    "Q4_K_M": ("llama, blocks of 256", MIXED),
    "odd": ("llama, blocks of 256", ODD),
}
"""Storage types of weights, by a part of their names, for a model of a family."""

_FOLDER = TemporaryDirectory()


@cache
def checkpoint(family: str) -> Path:
    """Returns the folder of a checkpoint whose norms and biases are random, too."""
    folder = Path(_FOLDER.name, family)
    model = make_model(CONFIGS[family])
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            weight.data = torch.randn_like(weight) * 0.3 + ("norm" in name)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@cache
def made(stored: str, family: str = "", num_rows: int = 0) -> Path:
    """Returns a file with the storage types of TYPES, by default of their own family. num_rows: without tokens."""
    own, kinds = TYPES[stored]
    family = family or own
    plain = Path(_FOLDER.name, f"{family}.gguf")
    if not plain.exists():
        export(str(checkpoint(family)), plain)
    file = Path(_FOLDER.name, f"{family} {stored} {num_rows}.gguf")
    stored_again(plain, file, lambda name: next(kind for part, kind in kinds.items() if part in name), num_rows)
    return file


def keeping(
    file: Path, kept: NDArray[np.int64], nearest: NDArray[np.int64], *, is_whole: bool = False, is_spoilt: bool = False
) -> Path:
    """Writes a file in Q8_0 that keeps some tokens. nearest: row of each token as an input.

    is_whole: has all rows, with the same inputs, instead. is_spoilt: its logits are no numbers.
    """
    made("F32", "llama")

    def change(name: str, data: NDArray[np.float32]) -> NDArray[np.float32]:
        if name not in ("token_embd.weight", "output.weight"):
            return data * np.float32(np.nan) if is_spoilt and name == "output_norm.weight" else data
        if is_whole:
            return data[kept][nearest] if name == "token_embd.weight" else data
        return data[kept]

    fields = {} if is_whole else {KEPT: kept.tolist(), NEAREST: nearest.tolist()}
    stored_again(Path(_FOLDER.name, "llama.gguf"), file, lambda name: "Q8_0", change=change, fields=fields)
    return file


def stored_again(
    plain: Path,
    file: Path,
    kind_of: Callable[[str], str],
    num_rows: int = 0,
    change: Callable[[str, NDArray[np.float32]], NDArray[np.float32]] = lambda name, data: data,
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Writes a float32 file with its matrices in other storage types. change: of a weight. fields: further ones."""

    def stored(name: str, data: NDArray[Any], _: Kind) -> tuple[NDArray[Any], Kind]:
        data = change(name, data)
        if name in ("token_embd.weight", "output.weight"):
            data = np.concatenate((data, data[:num_rows]))
        kind = Kind[kind_of(name)] if data.ndim > 1 else Kind.F32
        return _quantised(data, kind), kind

    tokens = gguf.GGUFReader(plain).fields["tokenizer.ggml.tokens"].contents()
    kinds = gguf.GGUFReader(plain).fields["tokenizer.ggml.token_type"].contents()
    more = [f"[PAD{len(tokens) + i}]" for i in range(num_rows)]
    padded = {"tokenizer.ggml.tokens": tokens + more, "tokenizer.ggml.token_type": kinds + [5] * num_rows}
    changed(plain, file, stored, padded | dict(fields))


def changed(
    source: Path,
    file: Path,
    change: Callable[[str, NDArray[Any], Kind], tuple[NDArray[Any], Kind] | None],
    fields: Mapping[str, Any],
) -> Path:
    """Writes a file with other weights and fields; None leaves one out. Further fields are lists of numbers."""
    reader = gguf.GGUFReader(source)
    known = {name: field.contents() for name, field in reader.fields.items()} | dict(fields)
    architecture, family = reader.fields["general.architecture"].contents(), known.pop("general.architecture")
    writer = gguf.GGUFWriter(file, family)
    for name, value in known.items():
        if value is None or name.startswith("GGUF."):
            continue
        types = [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT16]
        if name in reader.fields:
            types = reader.fields[name].types
        name = name.replace(f"{architecture}.", f"{family}.") if name.startswith(architecture) else name
        writer.add_key_value(name, value, types[0], types[-1] if len(types) > 1 else None)
    for tensor in reader.tensors:
        if (found := change(tensor.name, np.array(tensor.data), tensor.tensor_type)) is not None:
            writer.add_tensor(tensor.name, found[0], raw_dtype=found[1])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _quantised(data: NDArray[np.float32], kind: Kind) -> NDArray[Any]:
    try:
        found: NDArray[Any] = gguf.quants.quantize(data, kind)
    except NotImplementedError:  # of K-quants, the package has no more than the way back
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        found = np.random.default_rng(0).integers(0, 256, (len(data), data.shape[1] // weights, size), np.uint8)
        scales = slice(-2, None) if kind == Kind.Q6_K else slice(0, 4)  # of a block: one, or one for minima, too
        half = {"Q6_K": [4e-5], "Q4_K": [1e-3, 1e-3]}[kind.name]
        found[..., scales] = np.array(half, np.float16).view(np.uint8)
        found = found.reshape(len(data), -1)
    return found


@torch.inference_mode()
def expected(file: Path, family: str, tokens: list[int]) -> torch.Tensor:
    """Returns transformers' logits [num_tokens, vocab_size] with the file's weights in float32."""
    options = {"gguf_file": str(file), "config": CONFIGS[family], "dtype": torch.float32}
    model = AutoModelForCausalLM.from_pretrained(checkpoint(family), **options)
    logits: torch.Tensor = model.eval()(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits
