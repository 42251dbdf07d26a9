"""Logits of paged sessions equal the unmodified model's, whatever happens around them."""

import random
from collections.abc import Hashable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from goodspeed.engine import checkpoints
from goodspeed.engine.runner import Chunk, Runner


@pytest.fixture(scope="module")
def reference(architecture: Path) -> "Reference":
    return Reference(architecture)


class Reference:
    """The same checkpoint, as transformers runs it: whole sequences, no cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(self, tokens: list[int], num_logits: int) -> Tensor:
        logits: Tensor = self.model(torch.tensor([tokens]), use_cache=False).logits
        return logits[0, len(tokens) - num_logits :]

    def runner(self, **options: Any) -> Runner:
        return Runner(checkpoints.load(str(self.folder)), **options)


def known(logits: Tensor) -> Tensor:
    """Columns of the tokenizer; the byte tokenizer has 258 ids."""
    return logits[:, :258]


@pytest.mark.parametrize("sizes", [[5, 1, 6], [1] * 40], ids=["pieces", "token by token"])
def test_one_session_in_pieces_beyond_its_window(reference: Reference, sizes: list[int]) -> None:
    runner, tokens = reference.runner(num_pages=4, page_size=16), [(7 * i * i) % 250 for i in range(sum(sizes))]
    ends = list(accumulate(sizes))
    found = torch.cat(
        [runner.forward([Chunk("a", tokens[end - n : end], n)]) for n, end in zip(sizes, ends, strict=True)]
    )
    torch.testing.assert_close(known(found), known(reference.logits(tokens, len(tokens))), atol=1e-4, rtol=0)
    assert torch.isneginf(found[:, 258:]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("page_size", [1, 16])
def test_any_schedule(reference: Reference, seed: int, page_size: int) -> None:
    """Joins, leaves, prefill in chunks, drafting steps and rollbacks; unequal contexts; pages used again and again."""
    rng = random.Random(seed)
    runner = reference.runner(num_pages=900 // page_size, page_size=page_size)
    cached: dict[Hashable, list[int]] = {}
    for step in range(25):
        if len(cached) < 6 and rng.random() < 0.5:
            cached[step] = []
        for key in [key for key in cached if rng.random() < 0.08]:
            runner.free(key)
            del cached[key]
        for key, tokens in cached.items():
            if rng.random() < 0.5:
                del tokens[len(tokens) - rng.randint(0, min(9, len(tokens))) :]
                runner.truncate(key, len(tokens)) if key in runner.pool else None
        chunks = [make_chunk(rng, key) for key in cached if rng.random() < 0.8]
        if not chunks:
            continue
        rng.shuffle(chunks)
        found = runner.forward(chunks)
        expected = []
        for chunk in chunks:
            cached[chunk.key] += chunk.tokens
            expected.append(reference.logits(cached[chunk.key], chunk.num_logits))
            assert runner.pool.length(chunk.key) == len(cached[chunk.key])
        torch.testing.assert_close(known(found), known(torch.cat(expected)), atol=1e-4, rtol=0)


def make_chunk(rng: random.Random, key: Hashable) -> Chunk:
    num_tokens = rng.choice([1, 1, 2, 5, 8, rng.randint(9, 60)])
    tokens = [rng.randrange(258) for _ in range(num_tokens)]
    return Chunk(key, tokens, rng.choice([0, 1, num_tokens]))
