"""Small random checkpoints of several architectures, made in a temporary folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerFast

torch.set_num_threads(1)  # small matrices: more threads only wait for each other

SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SMALL |= {"vocab_size": 300, "max_position_embeddings": 512}
SMALL |= {"bos_token_id": None, "eos_token_id": 256, "pad_token_id": None}
SMALL |= {"initializer_range": 0.3}  # logits that differ: with the usual 0.02 every attention looks right

Save = Callable[..., Path]  # `save_checkpoint`: from a kind of model, or its configuration, to the folder
CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": transformers.LlamaConfig(**SMALL, num_key_value_heads=4),
    "qwen3": transformers.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8),
    "mistral": transformers.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=7),
    "phi3": transformers.Phi3Config(**SMALL, num_key_value_heads=1),
}


def make_tokenizer(merges: Any = (("t", "h"),), pre_tokenizer: Any = None) -> PreTrainedTokenizerFast:
    """Byte-level BPE: 256 bytes, an end-of-sequence token at 256, then the merges, pairs of texts."""
    vocab = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab |= {"<end>": 256} | {left + right: 257 + i for i, (left, right) in enumerate(merges)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    backend.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<end>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")


def make_model(config: PreTrainedConfig, seed: int = 0) -> Any:
    """Random weights, float32, with the model's own attention."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The place of a GGUF file."""
    return tmp_path / "it.gguf"


@pytest.fixture(scope="session")
def save_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """Write a checkpoint folder; by default of `SMALL` llama with the byte tokenizer."""

    def save(config: PreTrainedConfig | str = "llama", tokenizer: Any = None, **changes: Any) -> Path:
        folder = tmp_path_factory.mktemp("checkpoint")
        found = CONFIGS[config] if isinstance(config, str) else config
        found = type(found)(**(found.to_diff_dict() | changes)) if changes else found
        make_model(found).save_pretrained(folder)
        (tokenizer or make_tokenizer()).save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session", params=list(CONFIGS))
def architecture(request: pytest.FixtureRequest, save_checkpoint: Save) -> Path:
    """The folder of a checkpoint of each architecture in turn."""
    return save_checkpoint(request.param)
