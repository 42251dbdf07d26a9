"""Padded copies compute what the original does."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from experiments.benchmarks.load import padded


def test_a_copy_computes_the_same(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 4, "head_dim": 8, "intermediate_size": 40}
    sizes |= {"num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 64, "rms_norm_eps": 0.3}
    original = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True))
    for name, weight in original.named_parameters():
        torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.2)
    original.save_pretrained(tmp_path / "source")
    padded.pad(tmp_path / "source", padded.Shape(96, 100, 4, queries=96, keys=48), tmp_path / "padded")
    copy = AutoModelForCausalLM.from_pretrained(tmp_path / "padded", dtype=torch.float32)
    assert (copy.config.num_hidden_layers, copy.config.hidden_size) == (4, 96)
    prompt = torch.randint(0, 64, (1, 40))
    with torch.no_grad():
        torch.testing.assert_close(copy(prompt).logits, original(prompt).logits, atol=1e-4, rtol=1e-4)
