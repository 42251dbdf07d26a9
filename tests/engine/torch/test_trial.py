"""Models that would compute a wrong answer are refused: by their configuration, or when they are tried."""

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.loading import start
from goodspeed.errors import UnsupportedModelError
from tests.engine.conftest import Save
from tests.engine.torch.test_families import SIZES

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("GptOss", {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 2}, "s_aux: attention sinks"),
        ("Falcon", {}, "AttentionInterface"),
        ("Nemotron", {"num_key_value_heads": 2}, "does not pass its keyword arguments on"),
        ("Mamba", {"state_size": 4}, "linear_attention"),
        ("Lfm2", {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]}, "layer types \\['conv'\\]"),
        ("Llama", {"rope_parameters": DYNAMIC}, "'dynamic'.*longest sequence"),
    ],
)
def test_a_family_that_bypasses_or_changes_attention(save_checkpoint, name, changes, reason):
    folder = save_checkpoint(getattr(transformers, f"{name}Config")(**(SIZES | changes)))
    with pytest.raises(UnsupportedModelError, match=reason):
        start(checkpoints.load(str(folder)), num_pages=16)


def test_a_model_that_mixes_tokens_outside_attention(save_checkpoint: Save) -> None:
    """Nothing in the configuration tells; the trial against the model's own logits does."""
    checkpoint = checkpoints.load(str(save_checkpoint()))
    decoder: Any = checkpoint.model.model
    decoder.norm = Shifted(decoder.norm)
    with pytest.raises(UnsupportedModelError, match="logits differ"):
        start(checkpoint, num_pages=16)


class Shifted(nn.Module):
    """Adds to every token the one before it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: torch.Tensor) -> Any:
        return self.inner(hidden + hidden.roll(1, dims=1))


def test_a_window_that_attention_is_not_told(save_checkpoint: Save) -> None:
    checkpoint = checkpoints.load(str(save_checkpoint("llama")))
    checkpoint.model.config.sliding_window = 9
    with pytest.raises(UnsupportedModelError, match=r"layer 0 has 9 in config\.json, but requests None"):
        start(checkpoint, num_pages=16)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bits_pass_the_trial(save_checkpoint: Save, dtype: str) -> None:
    engine = start(checkpoints.load(str(save_checkpoint("qwen3")), dtype=dtype), num_pages=16)
    assert engine.forward([Chunk("a", [1, 2, 3], 2)]).dtype == torch.float32
