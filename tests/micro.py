"""Microscopic random Llamas, made in a moment: real models for tests of the code around models."""

from copy import deepcopy
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from goodspeed.engine.base import Checkpoint
from goodspeed.engine.torch.engine import TorchEngine
from goodspeed.engine.torch.loading import start

VOCAB = 64
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
SIZES |= {"intermediate_size": 64, "vocab_size": VOCAB, "max_position_embeddings": 128}
CONFIG = LlamaConfig(
    **SIZES,
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
    initializer_range=0.25,  # distributions that differ from place to place, and are neither flat nor certain
)


def make_checkpoint(seed: int = 0, *, shift: float = 0.0, num_tokens: int = VOCAB) -> Checkpoint:
    """Creates random weights from a seed; `shift`: scale of noise added to them, as for a draft model."""
    torch.manual_seed(seed)
    model: Any = AutoModelForCausalLM.from_config(deepcopy(CONFIG), attn_implementation="sdpa").eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += shift * torch.randn_like(weight)
    named: Any = {"name": "micro", "tokenizer": None, "tokenizer_fingerprint": "micro", "eos_ids": ()}
    sizes: Any = {"vocab_size": VOCAB, "num_tokens": num_tokens, "context_len": CONFIG.max_position_embeddings}
    return Checkpoint(**named, **sizes, model=model, device=torch.device("cpu"), dtype=torch.float32)


def make_engine(
    checkpoint: Checkpoint, num_pages: int = 256, page_size: int = 4, *, prefix_cache: bool = False
) -> TorchEngine:
    return start(checkpoint, num_pages=num_pages, page_size=page_size, prefix_cache=prefix_cache)
