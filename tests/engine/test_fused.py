"""Fused passes compute the model's logits; on a CPU, a target's are batch-invariant in bfloat16."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from goodspeed.engine import checkpoints
from goodspeed.engine.fused import Angles, Fused, can_fuse
from goodspeed.engine.runner import Chunk, Runner, try_model
from tests.engine.conftest import SMALL, Save

has_bfloat16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU does not multiply in bfloat16"
)
WIDE = SMALL | {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 1024, "initializer_range": 0.05}
CONFIGS = {
    "wide": LlamaConfig(**WIDE, num_key_value_heads=12),
    "grouped": Qwen3Config(**WIDE, num_key_value_heads=4, head_dim=64),
    "windowed, biased": Qwen2Config(
        **WIDE, num_key_value_heads=6, use_sliding_window=True, sliding_window=20, max_window_layers=1
    ),
}
TEXT = [(7919 * i + 1) % 250 for i in range(150)]
LONG = {
    "long": WIDE | {"num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 1024},  # of 128
    "long, windowed": WIDE | {"num_key_value_heads": 4, "max_position_embeddings": 1024, "sliding_window": 600},
}
LONG_TEXT = [(7919 * i * i + 13 * i + 1) % 250 for i in range(1000)]


@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_are_the_unmodified_models(kind: str, save_checkpoint: Save) -> None:
    folder = str(save_checkpoint(CONFIGS[kind]))
    with torch.inference_mode():
        expected = checkpoints.load(folder).model(torch.tensor([TEXT]), use_cache=False).logits[0]
    runner = Runner(checkpoints.load(folder), num_pages=16)

    found = torch.cat([runner.forward([Chunk("a", TEXT[:100], 100)]), runner.forward([Chunk("a", TEXT[100:], 50)])])

    torch.testing.assert_close(found[:, :258], expected[:, :258], atol=1e-3, rtol=1e-4)


def test_a_checkpoint_serves_several_runners(save_checkpoint: Save) -> None:
    checkpoint = checkpoints.load(str(save_checkpoint("llama")))

    first, second = (Runner(checkpoint, num_pages=4) for _ in range(2))

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


def test_angles_without_a_table_are_those_of_the_table(save_checkpoint: Save) -> None:
    model: Any = checkpoints.load(str(save_checkpoint(CONFIGS["grouped"]))).model
    with_table, without = Angles(model.model.rotary_emb), Angles(model.model.rotary_emb)
    without._has_table = False  # as on a GPU
    positions, rows = torch.tensor([3, 0, 700]), torch.zeros(3, 768)

    for found, expected in zip(without.at(positions, rows), with_table.at(positions, rows), strict=True):
        torch.testing.assert_close(found, expected)


def pieces(rng: random.Random, length: int) -> Iterator[int]:
    while length:
        yield (piece := min(length, rng.choice([1, 1, 2, 3, 9, 33, 64, 100])))
        length -= piece


def logits_in_company(runner: Runner, seed: int, text: list[int]) -> Tensor:
    """The logits of a text in pieces of any size, each in a batch with others' tokens."""
    rng, found, done = random.Random(seed), [], 0
    for piece in pieces(rng, len(text)):
        chunks = [Chunk("text", text[done : done + piece], piece)]
        for other in range(rng.randrange(5)):
            tokens = [rng.randrange(250) for _ in range(rng.choice([1, 1, 2, 7, 40]))]
            chunks.append(Chunk((done, other), tokens, len(tokens)))
        rng.shuffle(chunks)
        first = sum(chunk.num_logits for chunk in chunks[: [chunk.key for chunk in chunks].index("text")])
        found.append(runner.forward(chunks)[first : first + piece].clone())
        for chunk in chunks:
            if chunk.key != "text" and rng.random() < 0.7:
                runner.free(chunk.key)
        done += piece
    for key in list(runner.pool):
        runner.free(key)
    return torch.cat(found)


@has_bfloat16
@pytest.mark.parametrize("kind", CONFIGS)
def test_bfloat16_gives_the_same_bits_in_any_batch(kind: str, save_checkpoint: Save) -> None:
    checkpoint = checkpoints.load(str(save_checkpoint(CONFIGS[kind])), dtype="bfloat16")
    runner = Runner(checkpoint, num_pages=400, is_target=True)

    whole, *others = (logits_in_company(runner, seed, TEXT) for seed in range(8))

    for other in others:
        assert torch.equal(other, whole)


@has_bfloat16
@pytest.mark.parametrize("kind", LONG)
def test_a_long_text_has_the_same_bits_in_any_batch(kind: str, save_checkpoint: Save) -> None:
    config = (MistralConfig if "sliding_window" in LONG[kind] else LlamaConfig)(**LONG[kind])
    runner = Runner(checkpoints.load(str(save_checkpoint(config)), dtype="bfloat16"), num_pages=1000, is_target=True)

    whole = runner.forward([Chunk("text", LONG_TEXT, len(LONG_TEXT))]).clone()
    runner.free("text")

    assert all(torch.equal(logits_in_company(runner, seed, LONG_TEXT), whole) for seed in range(3))


@has_bfloat16
def test_only_fused_targets_pay_for_equal_bits(save_checkpoint: Save) -> None:
    llama, other = (checkpoints.load(str(save_checkpoint(kind)), dtype="bfloat16") for kind in ("llama", "phi3"))
    runners = [Runner(one, num_pages=4, is_target=is_target) for one in (llama, other) for is_target in (True, False)]
    assert [runner.is_batch_invariant for runner in runners] == [True, False, False, False]
    assert not Runner(checkpoints.load(str(save_checkpoint("llama"))), num_pages=4, is_target=True).is_batch_invariant
