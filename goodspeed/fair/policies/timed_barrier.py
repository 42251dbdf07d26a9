"""Draft lengths that maximise utility per second where every round waits for every draft (`--rounds barrier`).

A round with N sessions then takes T(S) and, before it, the longest of all ways there and back with the drafting:
everybody pays for whoever drafts longest. So this maximises

    F(S) = sum of w_i U'(X_i) mu_i(S_i) / (T(S) + max of away_i(S_i) over those that draft)

If nobody may be away for longer than some bound, each client may draft so many tokens, and T depends on the number of
tokens only; so tokens in Eq. (5)'s order, as far as they keep within the bound, are best. Every number of them is
tried, and every bound that makes a difference: some of them first, then those beside the best (exact where they are
few; the tests compare with a search over all allocations). Length 0 for everybody waits for nothing.

Knows nothing about rounds or messages: arrays in, lengths out.
"""

from __future__ import annotations

import numpy as np

from goodspeed.fair.policies.base import Floats, Ints
from goodspeed.fair.policies.cycles import Timing
from goodspeed.fair.policies.tie_breaking import TieBreaker
from goodspeed.fair.policies.timed import MARGIN, Cost

NUM_BOUNDS = 12
"""Bounds that are tried at once."""

MAX_CELLS = 1 << 12
SHORT = 8
"""Longest draft with so many clients that longer ones would make too many cells."""


class BarrierAllocation:
    """Allocates one round after the other; only ties carry over."""

    def __init__(self, cost: Cost, ties: TieBreaker) -> None:
        self._cost = cost
        self._ties = ties

    def allocate(self, worth: Floats, acceptance: Floats, caps: Ints, timing: Timing, budget: int) -> Ints:
        """worth: w U'(X) of each client -> draft lengths, int64 [clients], together at most `budget`."""
        if not caps.any() or not budget:
            return np.zeros_like(caps)
        search = _Search(worth, acceptance, caps, timing, budget, self._cost)
        tokens = search.best()
        if not tokens.size:
            return np.zeros_like(caps)
        owner, gains = search.owner[tokens], search.gains[tokens]
        above = np.bincount(owner[gains > gains[-1]], minlength=caps.size)
        within = search.gains == gains[-1]
        within &= search.away_s <= search.away_s[tokens].max()
        tied = np.bincount(search.owner[within], minlength=caps.size)
        return above + self._ties.share(tied, tokens.size - int(above.sum()))


class _Search:
    """One allocation problem. Its *cells* are all tokens that might be drafted, the best first."""

    def __init__(self, worth: Floats, acceptance: Floats, caps: Ints, timing: Timing, budget: int, cost: Cost) -> None:
        num = caps.size
        longest = int(np.minimum(caps.max(), max(SHORT, MAX_CELLS // num)))
        owner, step = np.nonzero(caps[:, None] > np.arange(longest))  # token step + 1 of its client
        gains = worth[owner] * acceptance[owner] ** (step + 1.0)
        away_s = timing.round_trip_s[owner] + timing.draft_s_per_token[owner] * (step + 1.0)
        order = np.argsort(-gains, kind="stable")
        self.owner, self.gains, self.away_s = owner[order], gains[order], away_s[order]  # [cells]
        self._budget = budget
        self._plain = float(worth.sum())
        nums = np.arange(num, num + budget + 1)
        seconds = cost.round_s(nums, num, float(timing.context_len.sum()))
        self._rounds = np.broadcast_to(np.asarray(seconds, np.float64), nums.shape)  # [budget + 1] T by drafted tokens

    def best(self) -> Ints:
        """Returns the cells to be drafted; none where drafting does not pay."""
        bounds = np.unique(self.away_s)
        low, high = 0, bounds.size - 1
        while True:
            tried = np.unique(np.linspace(low, high, NUM_BOUNDS).astype(np.int64))
            rates, nums = self._try(bounds[tried])
            at = int(np.argmax(rates))
            if high - low < NUM_BOUNDS:
                break
            low, high = int(tried[max(at - 1, 0)]), int(tried[min(at + 1, tried.size - 1)])
        margin = MARGIN if bounds[tried[at]] > 0.0 else 0.0
        if (1.0 - margin) * rates[at] <= self._plain / self._rounds[0]:
            return np.zeros(0, dtype=np.int64)
        chosen: Ints = np.flatnonzero(self.away_s <= bounds[tried[at]])[: int(nums[at])]
        return chosen

    def _try(self, bounds: Floats) -> tuple[Floats, Ints]:
        """Returns the best F for each bound, and its number of tokens."""
        taken = self.away_s <= bounds[:, None]  # [bounds, cells]
        count = np.minimum(taken.cumsum(axis=1), self._budget + 1)
        taken &= count <= self._budget
        count = np.minimum(count, self._budget)
        worth = self._plain + np.where(taken, self.gains, 0.0).cumsum(axis=1)
        waits = np.maximum.accumulate(np.where(taken, self.away_s, 0.0), axis=1)
        rates = np.where(taken, worth / (self._rounds[count] + waits), 0.0)
        at = rates.argmax(axis=1)
        rows = np.arange(len(bounds))
        return rates[rows, at], count[rows, at]
