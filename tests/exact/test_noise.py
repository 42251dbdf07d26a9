"""Noise of many rows and tokens at once, and at a few ids; draws made with it are tested in test_sampling.py."""

import random

import pytest
import torch
from scipy import stats
from torch import Tensor

from goodspeed.exact.noise import Role, key, match_noise
from goodspeed.exact.noise_at import match_key, noise_at
from goodspeed.exact.sampling import sample
from tests.exact.chi_square import REJECT, fits

VOCAB = 4096


def rows(seeds: Tensor | int, positions: Tensor | int) -> Tensor:
    both = torch.broadcast_tensors(torch.as_tensor(seeds), torch.as_tensor(positions))
    return match_noise(both[0], both[1], VOCAB)


TEXT = (3, torch.arange(1000))  # positions of one seed
USERS = (torch.arange(1000), 0)  # the first token of neighbouring seeds


@pytest.mark.parametrize("counters", [TEXT, USERS])
def test_noise_is_exponential_in_the_bulk_and_near_zero(counters):
    noise = rows(*counters)
    assert stats.kstest(noise[:, ::10].flatten().numpy(), "expon").pvalue > REJECT
    smallest = noise.amin(1) * VOCAB  # what decides a draw from a flat distribution
    assert stats.kstest(smallest.numpy(), "expon").pvalue > REJECT


@pytest.mark.parametrize("counters", [TEXT, USERS])
@pytest.mark.parametrize("distance", [1, 2, 64, 1024])
def test_four_tokens_of_a_row_are_independent(counters, distance):
    quarter = (torch.exp(-rows(*counters)) * 4).long().clamp(max=3).view(1000, -1, 4, distance)
    assert fits(torch.einsum("rgtd,t->rgd", quarter, 4 ** torch.arange(4)), torch.ones(256)) > REJECT


@pytest.mark.parametrize("counters", [TEXT, USERS])
def test_four_rows_are_independent_token_by_token(counters):
    quarter = (torch.exp(-rows(*counters)) * 4).long().clamp(max=3).view(-1, 4, VOCAB)
    assert fits(torch.einsum("grv,r->gv", quarter, 4 ** torch.arange(4)), torch.ones(256)) > REJECT


def test_noise_of_an_id_does_not_depend_on_the_width():
    seeds, first = torch.arange(50), torch.tensor(0)
    wide = match_noise(seeds, first, 5000)
    for vocab in (1, 7, 16, 33, 1000):
        assert torch.equal(match_noise(seeds, first, vocab), wide[:, :vocab])
        assert torch.equal(match_noise(seeds[11:12], first, vocab), wide[11:12, :vocab])


# Three of the 2^32 values, found by inverting the hash: those nearest to noise 0 and to noise without end.
@pytest.mark.parametrize(("seed", "token"), [(249_990, 700), (14_239, 2977), (866_652, 2919)])
def test_extreme_noise_is_still_a_number(seed, token):
    noise = rows(seed, torch.tensor([0]))
    assert noise[0, token] in (noise.min(), noise.max())
    assert 0 < noise[0, token] < torch.inf
    for one in (token, 5):  # a draw with and without that token
        probs = torch.zeros(1, VOCAB)
        probs[0, one] = 1.0
        assert sample(probs, torch.tensor([seed]), torch.tensor([0])) == one


LARGE = 150_000
SEEDS = (0, 1, (1 << 63) - 1, *(random.Random(1).randrange(1 << 63) for _ in range(1_000)))


@pytest.mark.parametrize("first", range(0, len(SEEDS), 250))
def test_keys_at_a_few_ids_are_the_same_to_the_last_bit(first):
    seeds = SEEDS[first : first + 250]
    positions = [random.Random(seed).randrange(1 << random.Random(seed).randrange(1, 32)) for seed in seeds]
    expected = key(Role.MATCH, torch.tensor(seeds), torch.tensor(positions)).tolist()
    found = [match_key(seed, position) for seed, position in zip(seeds, positions, strict=True)]
    assert found == [number & ((1 << 64) - 1) for number in expected]


@pytest.mark.parametrize("seed", SEEDS[:40])
def test_noise_at_a_few_ids_is_the_same_up_to_the_logarithm_s_rounding(seed):
    rng = random.Random(seed)
    position = rng.randrange(1 << 20)
    expected = match_noise(torch.tensor([seed]), torch.tensor([position]), LARGE)[0]
    ids = [rng.randrange(LARGE) for _ in range(1_000)] + expected.topk(50).indices.tolist()
    ids += expected.topk(50, largest=False).indices.tolist()  # rounding matters most at both ends
    found = noise_at(match_key(seed, position), ids)
    assert found == pytest.approx(expected[ids].tolist(), rel=1.2e-7, abs=0)
