"""Models that would compute a wrong answer are refused by name, with the reason."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.attention.interface import refuse_unknown
from goodspeed.engine.torch.engine import TorchEngine
from goodspeed.engine.torch.loading import start
from goodspeed.errors import UnsupportedModelError
from tests.engine.conftest import Save
from tests.engine.torch.test_families import SIZES


def open_runner(folder: Path) -> TorchEngine:
    return start(checkpoints.load(str(folder)), num_pages=16)


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("Gemma2", {"num_key_value_heads": 2, "head_dim": 8}, "attn_logit_softcapping.*not supported"),
        ("GptOss", {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 2}, "s_aux: attention sinks"),
        (
            "Llama",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "'dynamic'.*another",
        ),
        (
            "Phi3",
            {
                "max_position_embeddings": 64,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "partial_rotary_factor": 1.0,
                    "short_factor": [1.0] * 4,
                    "long_factor": [2.0] * 4,
                    "original_max_position_embeddings": 32,
                },
            },
            "'longrope'.*longest sequence",
        ),
        ("Falcon", {}, "AttentionInterface"),
        ("Nemotron", {"num_key_value_heads": 2}, "does not pass its keyword arguments on"),
        ("Mamba", {"state_size": 4}, "linear_attention"),
        ("Lfm2", {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]}, "layer types \\['conv'\\]"),
    ],
)
def test_refused_by_name(save_checkpoint: Save, name: str, changes: dict[str, Any], reason: str) -> None:
    folder = save_checkpoint(getattr(transformers, f"{name}Config")(**(SIZES | changes)))
    with pytest.raises(UnsupportedModelError, match=reason):
        open_runner(folder)


@pytest.mark.parametrize("name", ["softcap", "s_aux", "position_bias", "something_new"])
def test_attention_arguments_that_change_the_result(name: str) -> None:
    refuse_unknown({name: None, "position_ids": torch.zeros(1)}, attention_mask=None, dropout=0.0, is_causal=True)
    with pytest.raises(UnsupportedModelError, match=f"{name}: "):
        refuse_unknown({name: 1.0}, attention_mask=None, dropout=0.0, is_causal=None)


@pytest.mark.parametrize(
    ("given", "what"),
    [({"attention_mask": torch.zeros(1)}, "mask"), ({"dropout": 0.1}, "eval"), ({"is_causal": False}, "bidirectional")],
)
def test_masks_dropout_and_looking_ahead(given: dict[str, Any], what: str) -> None:
    with pytest.raises(UnsupportedModelError, match=what):
        refuse_unknown({}, **({"attention_mask": None, "dropout": 0.0, "is_causal": None} | given))


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

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.inner(hidden + hidden.roll(1, dims=1))
        return normed


def test_a_window_that_attention_is_not_told(save_checkpoint: Save) -> None:
    checkpoint = checkpoints.load(str(save_checkpoint("llama")))
    checkpoint.model.config.sliding_window = 9
    with pytest.raises(UnsupportedModelError, match=r"layer 0 has 9 in config\.json, but requests None"):
        start(checkpoint, num_pages=16)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bits_pass_the_trial(save_checkpoint: Save, dtype: str) -> None:
    runner = start(checkpoints.load(str(save_checkpoint("qwen3")), dtype=dtype), num_pages=16)
    assert runner.forward([Chunk("a", [1, 2, 3], 2)]).dtype == torch.float32


def test_the_model_alone_says_how_to_call_it(save_checkpoint: Save) -> None:
    runner = open_runner(save_checkpoint("phi3"))
    with pytest.raises(RuntimeError, match="call it through"):
        runner.checkpoint.model(torch.zeros((1, 2), dtype=torch.int64))
