"""An exported file is the model and its tokenizer: llama.cpp itself says so."""

from pathlib import Path
from typing import Any
from unicodedata import is_normalized

import pytest
import torch
from tokenizers import Regex, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen3Config

from goodspeed.embedded import models
from goodspeed.engine.gguf import vocabulary as reading
from goodspeed.engine.gguf.file import read
from goodspeed.engine.tokenizing.text import encode_part
from goodspeed.engine.torch import checkpoints
from goodspeed.errors import UnsupportedModelError
from tests import llama_server
from tests.engine.conftest import SMALL, Save, make_tokenizer
from training import exporting
from training.exporting import export

TEXTS = (
    "".join(map(chr, range(1, 128))),
    "Déjà vu, naïve Übergröße; Привет мир; 漢字 かな 한국어; ½ ² ١٢٣",
    "def f(x, *y):\n\treturn {'a': [x] * 40 + 2, \"b\": 0x1f}  # it's we'll\r\n\n\n    pass",
    "🙂👩‍👩‍👧 🇨🇭 fi\u00a0x \u2028 e\u0301",
    "<|end|> <|end|>a b<|end|>",
)


def greedy(url: str, prompt: list[int], num: int) -> list[int]:
    body = {"prompt": prompt, "n_predict": num, "temperature": 0, "ignore_eos": True, "return_tokens": True}
    return list(llama_server.ask(url, "completion", **body)["tokens"])


def greedy_here(folder: Path, prompt: list[int], num: int) -> list[int]:
    checkpoint = checkpoints.load(str(folder))
    model: Any = checkpoint.model
    # The file has none of these rows, but for a mask.
    unknown = list(range(checkpoint.num_tokens, checkpoint.vocab_size)) or None
    options = {"do_sample": False, "eos_token_id": None, "suppress_tokens": unknown}
    ids = model.generate(torch.tensor([prompt]), max_new_tokens=num, **options)
    return list(ids[0, len(prompt) :].tolist())


def split(regex: str) -> Any:
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), bytes_only])


def tokenizer_with(pre_tokenizer: Any) -> PreTrainedTokenizerFast:
    return make_tokenizer((("1", "2"), ("12", "3"), ("Ġ", "a"), ("t", "h"), ("'", "s"), ("Ċ", "Ċ")), pre_tokenizer)


@pytest.mark.parametrize("name", models.NAMES)
def test_an_embedded_model_writes_and_encodes_as_here(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.gguf"
    export(name, file)
    tokenizer = checkpoints.load_vocabulary(name).tokenizer
    with llama_server.serving(file) as url:
        for text in TEXTS:
            assert llama_server.ask(url, "tokenize", content=text)["tokens"] == encode_part(tokenizer, text), text
        prompt = encode_part(tokenizer, "Once upon a time there lived")
        wanted = 64 if name == "tiny-draft-s" else 16
        assert greedy(url, prompt, wanted) == greedy_here(models.path(name), prompt, wanted)


LLAMA3 = {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0}
CHECKPOINTS = {
    "grouped heads": LlamaConfig(**SMALL, num_key_value_heads=2),
    "all biases": LlamaConfig(**SMALL, num_key_value_heads=4, attention_bias=True, mlp_bias=True),
    "llama3's angles": LlamaConfig(
        **SMALL | {"hidden_size": 64},
        num_key_value_heads=4,
        rope_parameters=LLAMA3 | {"high_freq_factor": 4.0, "original_max_position_embeddings": 32},
    ),
    "qwen2": Qwen2Config(**SMALL, num_key_value_heads=2),
    "qwen3": Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=16),
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_other_checkpoints_write_as_here(kind: str, save_checkpoint: Save, tmp_path: Path) -> None:
    folder = save_checkpoint(CHECKPOINTS[kind])
    export(str(folder), tmp_path / "it.gguf")
    prompt = list(range(40, 90))
    with llama_server.serving(tmp_path / "it.gguf") as url:
        assert greedy(url, prompt, 12) == greedy_here(folder, prompt, 12)


WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False)
STEPS = {
    "gpt-2": WORDS,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), WORDS]),
    **{name: split(steps[0]) for steps, name in exporting.PRE_TOKENIZERS.items() if steps[-1] == "bytes"},
}


@pytest.mark.parametrize("name", [*STEPS])
def test_other_tokenizers_encode_as_here(name: str, save_checkpoint: Save, tmp_path: Path) -> None:
    tokenizer = tokenizer_with(STEPS[name])
    tokenizer.backend_tokenizer.model.ignore_merges = name in ("llama-bpe", "tekken")
    export(str(save_checkpoint("llama", tokenizer)), tmp_path / "it.gguf")
    again = reading.load(read(tmp_path / "it.gguf", "it")).tokenizer
    with llama_server.serving(tmp_path / "it.gguf") as url:
        for text in (*TEXTS, "123123 12312 's 'S a\n\n a"):
            ids = encode_part(tokenizer, text)
            assert llama_server.ask(url, "tokenize", content=text)["tokens"] == ids, text
            assert encode_part(again, text) == ids or not is_normalized("NFC", text), text


@pytest.mark.parametrize(
    "config",
    [
        "phi3",
        "mistral",
        LlamaConfig(**SMALL, hidden_act="gelu"),
        Qwen2Config(**SMALL, num_key_value_heads=2, rope_parameters={"rope_type": "linear", "factor": 2.0}),
    ],
    ids=("family", "windows", "activation", "angles"),
)
def test_what_llama_cpp_would_compute_otherwise_is_refused(config: Any, save_checkpoint: Save, tmp_path: Path) -> None:
    folder = save_checkpoint(config)
    with pytest.raises(UnsupportedModelError, match="would compute it otherwise"):
        export(str(folder), tmp_path / "it.gguf")


def test_an_unknown_pre_tokenizer_is_refused(save_checkpoint: Save, tmp_path: Path) -> None:
    folder = save_checkpoint("llama", tokenizer_with(split(r"\p{L}+")))
    with pytest.raises(UnsupportedModelError, match=r"pre-tokenizer .* is unknown"):
        export(str(folder), tmp_path / "it.gguf")
