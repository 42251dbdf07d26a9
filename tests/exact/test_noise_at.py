"""The noise at a few ids is the target's own."""

import random

import pytest
import torch

from goodspeed.exact.noise import Role, key, match_noise
from goodspeed.exact.noise_at import match_key, noise_at

VOCAB = 150_000
SEEDS = (0, 1, (1 << 63) - 1, *(random.Random(1).randrange(1 << 63) for _ in range(1_000)))


@pytest.mark.parametrize("first", range(0, len(SEEDS), 250))
def test_keys_are_equal_to_the_last_bit(first):
    seeds = SEEDS[first : first + 250]
    positions = [random.Random(seed).randrange(1 << random.Random(seed).randrange(1, 32)) for seed in seeds]
    expected = key(Role.MATCH, torch.tensor(seeds), torch.tensor(positions)).tolist()
    found = [match_key(seed, position) for seed, position in zip(seeds, positions, strict=True)]
    assert found == [number & ((1 << 64) - 1) for number in expected]


@pytest.mark.parametrize("seed", SEEDS[:40])
def test_the_noise_is_equal_up_to_the_logarithm_s_rounding(seed):
    rng = random.Random(seed)
    position = rng.randrange(1 << 20)
    expected = match_noise(torch.tensor([seed]), torch.tensor([position]), VOCAB)[0]
    ids = [rng.randrange(VOCAB) for _ in range(1_000)] + expected.topk(50).indices.tolist()
    ids += expected.topk(50, largest=False).indices.tolist()  # rounding matters most at both ends
    found = noise_at(match_key(seed, position), ids)
    assert found == pytest.approx(expected[ids].tolist(), rel=1.2e-7, abs=0)
