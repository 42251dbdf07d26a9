"""Fused passes compute the model's logits."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, Qwen2Config, Qwen3Config

from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.fused_llama import Angles, Fused, can_fuse
from goodspeed.engine.torch.loading import start, try_model
from tests.engine.conftest import SMALL, Save

WIDE = SMALL | {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 1024, "initializer_range": 0.05}
WINDOWED = {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}
CONFIGS = {
    "wide": LlamaConfig(**WIDE, num_key_value_heads=12),
    "grouped": Qwen3Config(**WIDE, num_key_value_heads=4, head_dim=64),
    "windowed, biased": Qwen2Config(**WIDE, num_key_value_heads=6, **WINDOWED),
}
TEXT = [(7919 * i + 1) % 250 for i in range(150)]


@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_are_the_unmodified_models(kind: str, save_checkpoint: Save) -> None:
    folder = str(save_checkpoint(CONFIGS[kind]))
    with torch.inference_mode():
        expected = checkpoints.load(folder).model(torch.tensor([TEXT]), use_cache=False).logits[0]
    engine = start(checkpoints.load(folder), num_pages=16)
    found = torch.cat([engine.forward([Chunk("a", TEXT[:100], 100)]), engine.forward([Chunk("a", TEXT[100:], 50)])])
    torch.testing.assert_close(found[:, :258], expected[:, :258], atol=1e-3, rtol=1e-4)


def test_a_checkpoint_serves_several_engines(save_checkpoint: Save) -> None:
    checkpoint = checkpoints.load(str(save_checkpoint("llama")))
    first, second = (start(checkpoint, num_pages=4) for _ in range(2))
    assert isinstance(try_model(checkpoint, is_split=False)[0], Fused)
    assert torch.equal(first.forward([Chunk("a", TEXT[:9], 9)]), second.forward([Chunk("a", TEXT[:9], 9)]))


def test_other_layers_and_families_are_not_fused(save_checkpoint: Save) -> None:
    class Other(torch.nn.Linear):
        """Any layer of another kind, as quantised ones are."""

    model: Any = checkpoints.load(str(save_checkpoint("llama"))).model
    assert can_fuse(model)
    model.model.layers[1].mlp.down_proj.__class__ = Other
    assert not can_fuse(model)
    assert not can_fuse(checkpoints.load(str(save_checkpoint("phi3"))).model)


def test_angles_are_the_models_own(save_checkpoint: Save) -> None:
    model: Any = checkpoints.load(str(save_checkpoint(CONFIGS["grouped"]))).model
    positions, rows = torch.tensor([3, 0, 700, 40_000]), torch.zeros(4, 768)
    cos, sin = (one[:, 0] for one in Angles(model.model.rotary_emb).at(positions, rows))
    expected_cos, expected_sin = (one[0] for one in model.model.rotary_emb(rows[None], positions[None]))
    half = expected_sin.shape[1] // 2
    assert torch.equal(cos, expected_cos)
    assert torch.equal(sin, torch.cat((-expected_sin[:, :half], expected_sin[:, half:]), dim=1))
