"""Evidence that drafted tokens were not drawn from the distributions sent with them (ratio rule): factors of mean 1.

Each factor is a bet on a token: a function of the token whose mean under the claimed q is 1. It may depend on
everything known before the draw: the position, the draft before it, and the target's p there. So every drafted position
counts, also after a rejection. `Suspicion` evaluates the factors. There are two kinds:

- tilts, q(x)^-λ / Σ q(y)^(1-λ), for several λ. To first order in λ, the logarithm is λ (-log q(x) - H(q)). Tilts detect
  tokens that were less likely (λ > 0) or more likely (λ < 0) than tokens drawn from q are on average. A draw at
  temperature T that is claimed to be at 1 is best detected by λ = 1 - 1/T.
- the gain, (1 + min(1, p(x)/q(x)) / Σ min(p(y), q(y))) / 2, detects tokens that are accepted more often than tokens
  drawn from q would be. If q is uniform, all tilts are 1, and only the gain detects lies. A lie whose
  mean gain is at most 1 is not accepted more often than the truth.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goodspeed.exact.proposal_bytes import MAX_K

TILTS = (-1.0, -0.5, 0.25, 0.5)

ROUNDING = 1e-5
"""Subtracted from each factor's logarithm: more than the error in fp32 (6e-6 at 151,936 tokens), so that rounding never
accuses a draft node."""

SMALLEST_OVERLAP = 1e-6
"""Overlap Σ min(p, q) below which a position is ignored, because rounding would decide there."""


def log_tilts(draft_probs: Tensor, tokens: tuple[int, ...]) -> NDArray[np.float64]:
    """Returns log tilts summed over a draft's tokens [4]; each token must be possible in draft_probs [num, vocab]."""
    q: NDArray[np.float32] = draft_probs.numpy()
    logs = np.log(q[np.arange(len(tokens)), tokens].astype(np.float64)).sum()
    tilts: NDArray[np.float64] = -np.multiply(TILTS, logs) - _log_sums(q) - ROUNDING * len(tokens)
    return tilts


def _log_sums(q: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns log Σ q^(1-λ) for each of TILTS, summed over the rows of q [num_drafted, vocab].

    Computed from two square roots: a power costs twenty times as much.
    """
    possible = q.any(0)
    if np.count_nonzero(possible) <= MAX_K * len(q):  # a lattice
        q = q[:, possible]
    half = np.sqrt(q)
    quarter = np.sqrt(half)
    pairs = ((q, q), (q, half), (half, quarter))
    sums = [[left @ right for left, right in zip(*pair, strict=True)] for pair in pairs]
    log_sums: NDArray[np.float64] = np.log([*sums, half.sum(1)]).astype(np.float64).sum(1)
    return log_sums


def log_gains(ratios: Tensor, overlaps: Tensor) -> Tensor:
    """Returns each draft's log gains, summed over its tokens [batch].

    ratios: min(1, p/q) of each drafted token. overlaps: Σ min(p, q) at its position. Both are [batch, max_len] in fp64.
    Positions without an overlap, and padding, count as 0.
    """
    logs = ((1.0 + ratios / overlaps.clamp(min=SMALLEST_OVERLAP)) / 2).log() - ROUNDING
    return torch.where(overlaps > SMALLEST_OVERLAP, logs, 0.0).sum(1)
