"""A cache of the match rule's noise, in blocks of several positions of a text.

A draft needs the noise position after position, and some of it again after a rejection. For few rows of a small
vocabulary the calls take longer than the arithmetic. The values are those of `match_noise`, a pure function of seed and
position.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goodspeed.exact.noise import match_noise

POSITIONS = 8
"""Positions in a block; a block has one seed."""

MAX_BLOCKS = 64
"""Most cached blocks, over all seeds."""

MAX_ROWS = 8
"""Rows of the largest batch that uses blocks; larger batches are faster without (16 rows: 460 us, with blocks 730)."""

MAX_VOCAB = 1 << 14
"""Largest vocabulary that uses blocks: beyond it arithmetic dominates, and the blocks would take more than 32 MB."""


def noise_ahead(seeds: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """Returns `match_noise` [rows, vocab] as a new tensor, which the caller may overwrite."""
    if seeds.device.type != "cpu" or vocab > MAX_VOCAB or len(seeds) > MAX_ROWS:
        return match_noise(seeds, positions, vocab)
    noise = np.empty((len(seeds), vocab), np.float32)
    for row, seed, position in zip(noise, seeds.tolist(), positions.tolist(), strict=True):
        number, offset = divmod(position, POSITIONS)
        row[:] = _block(seed, number, vocab)[offset]
    return torch.from_numpy(noise)


@lru_cache(MAX_BLOCKS)
def _block(seed: int, number: int, vocab: int) -> NDArray[np.float32]:
    """Returns the noise [POSITIONS, vocab] of the positions from number * POSITIONS on."""
    first = number * POSITIONS
    positions = torch.arange(first, first + POSITIONS)
    noise: NDArray[np.float32] = match_noise(torch.tensor(seed), positions, vocab).numpy()
    return noise
