"""The two forms of top-k and top-p against each other; `test_sampling.py` holds them against a slow reference."""

import numpy as np
import pytest
import torch

from goodspeed.exact.logits.masks import truncate
from goodspeed.exact.logits.truncation import Kept
from goodspeed.exact.sampling import SamplingBatch, choose, sample, to_probs
from goodspeed.wire.messages import Sampling

OPTIONS = [
    Sampling(top_k=1),
    Sampling(top_k=20),
    Sampling(top_k=20, top_p=0.9),
    Sampling(top_p=0.9),
    Sampling(top_p=0.999),
    Sampling(top_p=1e-6),
    Sampling(top_k=4096, top_p=0.5),
]


def logits(scale: float, grid: float | None = None) -> torch.Tensor:
    values = torch.randn(len(OPTIONS), 4096, generator=torch.Generator().manual_seed(7)) * scale
    return values if grid is None else (values / grid).round() * grid


@pytest.mark.parametrize("rows", [logits(1.0), logits(5.0), logits(3.0, grid=0.5), logits(0.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_listing_keeps_what_masking_keeps(rows, dtype):
    rows = rows.to(dtype)
    probs = truncate(rows, OPTIONS, range(len(OPTIONS))).softmax(-1)
    kept = Kept.of(rows.numpy(), OPTIONS)
    listed = torch.zeros_like(probs)
    listed[torch.from_numpy(kept.rows), torch.from_numpy(kept.tokens)] = torch.from_numpy(kept.probs)
    torch.testing.assert_close(listed, probs, rtol=1e-5, atol=1e-8)
    assert torch.equal(listed > 0, probs > 0)


@pytest.mark.parametrize("rows", [logits(1.0), logits(5.0), logits(3.0, grid=0.5)])
def test_a_draw_from_the_few_is_the_draw_from_all(rows):
    """This holds in any mix with rows that nothing is cut from, and alone."""
    options = [Sampling(s.temperature, s.top_k, s.top_p, seed) for seed, s in enumerate(OPTIONS)]
    options[3] = Sampling(temperature=0.8, seed=3)
    options[5] = Sampling(temperature=0.0)
    for first in range(0, 400, 40):
        positions = torch.arange(first, first + len(options))
        batch = SamplingBatch.of(options)
        probs = to_probs(rows, batch)
        tokens = choose(rows, batch, positions)
        assert torch.equal(tokens, sample(probs, batch.seeds, positions))
        for i, option in enumerate(options):
            alone = SamplingBatch.of([option])
            assert torch.equal(to_probs(rows[i : i + 1], alone), probs[i : i + 1])
            assert choose(rows[i : i + 1], alone, positions[i : i + 1]) == tokens[i]


def test_half_precision_is_widened_first():
    rows = logits(3.0).bfloat16()
    batch, positions = SamplingBatch.of(OPTIONS), torch.arange(len(OPTIONS))
    assert torch.equal(choose(rows, batch, positions), choose(rows.float(), batch, positions))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_no_row_harms_no_other(value):
    rows = logits(3.0)
    positions = torch.arange(len(OPTIONS))
    batch = SamplingBatch.of(OPTIONS)
    right = choose(rows, batch, positions)
    for broken in range(len(OPTIONS)):
        damaged = rows.clone()
        damaged[broken] = value
        others = np.arange(len(OPTIONS)) != broken
        assert torch.equal(choose(damaged, batch, positions)[others], right[others])
