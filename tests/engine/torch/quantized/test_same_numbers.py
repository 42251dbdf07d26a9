"""A quantised checkpoint in float32 is the plain checkpoint of the same numbers, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.loading import start
from tests.engine.conftest import Save
from tests.engine.torch.quantized.making import awq_pair
from tests.engine.torch.test_families import SIZES

TOKENS = [(i * i) % 250 for i in range(40)]


def logits(folder: Path) -> torch.Tensor:
    """Logits of a prompt, then token by token.

    A product's rounding depends on where a weight begins in memory, by mapped files anywhere: here all begin alike.
    """
    checkpoint = checkpoints.load(str(folder))
    for weight in checkpoint.model.parameters():
        weight.data = weight.data.clone()
    engine = start(checkpoint, num_pages=16)
    first = engine.forward([Chunk("a", TOKENS[:30], 30)])
    return torch.cat([first, *(engine.forward([Chunk("a", [token], 1)]) for token in TOKENS[30:])])


def check_same(quantised: Path, plain: Path) -> None:
    found = checkpoints.load(str(quantised)).model.state_dict()
    expected = checkpoints.load(str(plain)).model.state_dict()
    assert list(found) == list(expected)
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []
    assert torch.equal(logits(quantised), logits(plain))


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "phi3"])
def test_awq(save_checkpoint: Save, architecture: str) -> None:
    check_same(*awq_pair(save_checkpoint(architecture)))


def test_awq_with_one_group_for_all_inputs(save_checkpoint: Save) -> None:
    quantised, plain = awq_pair(save_checkpoint("llama", intermediate_size=32), 32)
    config = quantised / "config.json"
    config.write_text(config.read_text().replace('"group_size": 32', '"group_size": -1'))
    check_same(quantised, plain)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("Qwen2", {}), ("Qwen2", {"tie_word_embeddings": True}), ("Mixtral", {"num_local_experts": 4})],
)
def test_biases_shared_heads_and_experts(save_checkpoint: Save, name: str, changes: Any) -> None:
    config = getattr(transformers, f"{name}Config")(**(SIZES | {"num_key_value_heads": 2} | changes))
    check_same(*awq_pair(save_checkpoint(config)))
