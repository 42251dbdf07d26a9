"""Noise that is kept is the noise that would have been made."""

import random

import pytest
import torch

from draft_node.model.noise_ahead import MAX_BLOCKS, MAX_ROWS, POSITIONS, noise_ahead
from goodspeed.exact.noise import match_noise

VOCAB = 33


@pytest.mark.parametrize("num_rows", [0, 1, 2, MAX_ROWS, MAX_ROWS + 1])
def test_it_is_bit_for_bit_the_noise_of_its_position(num_rows):
    """Whatever came before: positions go on, go back, seeds take turns, and more of them than are kept."""
    rng = random.Random(num_rows)
    for _ in range(2 * MAX_BLOCKS):
        numbers = [rng.choice([0, 1, -1, 1 << 62, rng.randrange(1 << 40)]) for _ in range(num_rows)]
        seeds = torch.tensor(numbers, dtype=torch.int64)
        positions = torch.tensor([rng.randrange(3 * POSITIONS) for _ in numbers], dtype=torch.int64)
        assert torch.equal(noise_ahead(seeds, positions, VOCAB), match_noise(seeds, positions, VOCAB))


def test_who_asks_may_overwrite_it():
    seeds, positions = torch.tensor([3]), torch.tensor([POSITIONS])
    noise_ahead(seeds, positions, VOCAB).zero_()
    assert torch.equal(noise_ahead(seeds, positions, VOCAB), match_noise(seeds, positions, VOCAB))


def test_vocabularies_are_not_confused():
    seeds, positions = torch.tensor([3]), torch.tensor([1])
    assert noise_ahead(seeds, positions, 5).shape == (1, 5)
    assert noise_ahead(seeds, positions, 9).shape == (1, 9)
    assert torch.equal(noise_ahead(seeds, positions, 9)[:, :5], noise_ahead(seeds, positions, 5))
