"""The engine on a CUDA device: logits equal the unmodified model's in float32, over joins, leaves and rollbacks."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen3Config

from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.runner import Chunk, Runner

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "initializer_range": 0.1,
}
CONFIGS = [LlamaConfig(**SIZES), Qwen3Config(**SIZES, head_dim=32), MistralConfig(**SIZES, sliding_window=40)]


def make_checkpoint(config: PreTrainedConfig, dtype: torch.dtype) -> Checkpoint:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False).to("cuda")
    return Checkpoint("made", model, None, "", (), 1000, 1000, 2048, torch.device("cuda"), dtype)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
@pytest.mark.parametrize("seed", [0, 1])
def test_any_schedule(config: PreTrainedConfig, seed: int) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    own = make_checkpoint(config, torch.float32).model
    runner = Runner(make_checkpoint(config, torch.float32), num_pages=1000)
    rng, cached = random.Random(seed), {key: list[int]() for key in range(24)}
    for _ in range(15):
        for key, tokens in cached.items():
            del tokens[len(tokens) - rng.randint(0, min(9, len(tokens))) :]
            runner.truncate(key, len(tokens))
        chunks = [make_chunk(rng, key) for key in cached if rng.random() < 0.7]
        found, first = runner.forward(chunks), 0
        for chunk in chunks:
            cached[chunk.key] += chunk.tokens
            with torch.inference_mode():
                ids = torch.tensor([cached[chunk.key]], device="cuda")
                expected = own(ids, use_cache=False).logits[0, -len(chunk.tokens) :]
            rows = found[first : first + len(chunk.tokens)]
            first += len(chunk.tokens)
            torch.testing.assert_close(rows, expected, atol=1e-4, rtol=1e-4)


def make_chunk(rng: random.Random, key: int) -> Chunk:
    tokens = [rng.randrange(1000) for _ in range(rng.choice([1, 2, 5, 8, 90]))]
    return Chunk(key, tokens, len(tokens))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_pass_the_trial(dtype: torch.dtype) -> None:
    runner = Runner(make_checkpoint(CONFIGS[0], dtype), memory_fraction=0.05)
    assert runner.forward([Chunk("a", [1, 2, 3], 2)]).dtype == torch.float32


def test_a_checkpoint_folder_on_the_device(tmp_path: Path) -> None:
    """Memory is a part of what is free once the weights are there."""
    runner = Runner(make_checkpoint(CONFIGS[0], torch.float32), memory_fraction=0.01)
    free = torch.cuda.mem_get_info()[0]
    assert 0 < runner.pool.num_pages * 16 * 3 * 2 * 2 * 32 * 4 < free
