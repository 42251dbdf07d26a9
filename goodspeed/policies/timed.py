"""Draft lengths when time counts: what is drafted must earn more than the time that it takes from everybody.

A round of T seconds serves n sessions; who drafts S tokens is away for own(S) = round trip + S x drafting time after
every verdict, and so gets its expected tokens mu(S) once in T + own(S) seconds. This maximises

    F(S) = sum of w_i U'(X_i) mu_i(S_i) / (T(S) + own_i(S_i)),    own(0) = 0,    T(S) from a cost model

where T(S) is the modelled time of a round with the tokens that the sessions bring to it (each in its `share` of the
rounds). Length 0 is a choice like any other: then plain decoding is faster.

For a given T each client's term rises concavely in S up to its maximum, but for the first step (a round trip), which
the upper hull bridges. So tokens are put in the order of what they add, and every number of them is tried in F itself,
with the T that it makes. The order hardly depends on T; it is made again for the T that was found. Where nobody waits
for drafts (own = 0) the order does not depend on T at all, and the result is exact (with equal shares; over a thousand
sessions the numbers that are tried close in on the best one, and F has one maximum there). Otherwise it is near: the
tests compare it with a search over all allocations.

Knows nothing about rounds or messages: arrays in, lengths out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from goodspeed.policies.base import Floats, Ints, check_values
from goodspeed.policies.turns import Turns

MAX_WIDTH = 1 << 10
"""No draft is longer (`messages.MAX_DRAFT`)."""

MAX_PASSES = 4
NEAR = 0.02  # relative change of T that does not change the order of tokens
MAX_TRIED = 1 << 12  # numbers of tokens times clients that are tried at once; else FEW numbers
FEW = 8


class Cost(Protocol):
    """Modelled seconds of a verify round (`goodspeed.latency`)."""

    def round_s(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any:
        """num_tokens: all tokens fed, number or array; context_tokens: cached ones of all sessions together."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """What takes the sessions' time; arrays [clients]."""

    draft_s_per_token: Floats
    round_trip_s: Floats
    share: Floats  # of the rounds that a session takes part in while it drafts
    context_len: Floats

    def check(self) -> None:
        """Raises ConfigError for a value out of range, naming it."""
        for name in ("draft_s_per_token", "round_trip_s", "context_len"):
            values = getattr(self, name)
            check_values(name, values, (values >= 0.0) & (values < np.inf), "0 or more, and finite")
        check_values("share", self.share, (self.share > 0.0) & (self.share <= 1.0), "above 0 and at most 1")


class TimedAllocation:
    """Allocates one round after the other; the round's time found last is where the next search begins."""

    def __init__(self, cost: Cost, turns: Turns) -> None:
        self._cost = cost
        self._turns = turns
        self._round_s = 0.0

    def allocate(self, worth: Floats, acceptance: Floats, caps: Ints, timing: Timing, budget: int) -> Ints:
        """worth: w U'(X) of each client -> draft lengths, int64 [clients], together at most `budget`."""
        if not caps.any() or not budget:
            return np.zeros_like(caps)
        search = _Search(worth, acceptance, caps, timing, budget, self._cost)
        if not self._round_s:
            self._round_s = float(search.round_s(0.0))
        best = search.best_at(self._round_s)
        for _ in range(MAX_PASSES - 1):
            settled = abs(best.round_s - self._round_s) <= NEAR * best.round_s
            self._round_s = best.round_s
            if settled or not search.waits:
                break
            best = max(best, search.best_at(self._round_s), key=lambda found: found.rate)
        return best.lengths if best.num == 0 else _largest(best.gains, best.num, self._turns)


@dataclass(frozen=True, slots=True)
class _Best:
    num: int  # drafted tokens
    lengths: Ints  # [clients]
    rate: float  # F
    round_s: float  # T
    gains: Floats  # [clients, width] by which the tokens were put in order


class _Search:
    """One allocation problem, and what of it does not depend on T."""

    def __init__(self, worth: Floats, acceptance: Floats, caps: Ints, timing: Timing, budget: int, cost: Cost) -> None:
        self._cost = cost
        self._share = timing.share
        self._num_sessions = float(timing.share.sum())
        self._context = float((timing.share * timing.context_len).sum())
        self._budget = budget
        self._longest = int(min(caps.max(), MAX_WIDTH))
        self._idle_s, token_s = self.round_s(np.array([0.0, 1.0]))  # token_s: with one token
        slowest_s = self._idle_s + timing.round_trip_s.max() + timing.draft_s_per_token.max() * self._longest
        # A token's price is dT/dtoken times F over a cycle; F is at least what it is without any draft.
        self._least_gain = float((token_s - self._idle_s) * worth.sum() / self._idle_s / slowest_s)
        width = self._width(worth, acceptance)
        steps = np.arange(1, width + 1)
        self._allowed: NDArray[np.bool_] = steps <= caps[:, None]  # [clients, width]
        self._steps = steps
        powers = np.multiply.accumulate(np.broadcast_to(acceptance[:, None], (caps.size, width)), axis=1)
        self._value = np.empty((caps.size, width + 1))  # w U'(X) mu(S) for S = 0 ... width
        self._value[:, 0] = 1.0
        self._value[:, 1:] = 1.0 + powers.cumsum(axis=1)
        self._value *= worth[:, None]
        self._own = np.zeros_like(self._value)
        self._own[:, 1:] = timing.round_trip_s[:, None] + timing.draft_s_per_token[:, None] * steps
        self.waits = bool(self._own[:, -1].any())
        self._clients = np.arange(caps.size)

    def round_s(self, num_drafted: Any) -> Any:
        """T with so many drafted tokens in the round."""
        return self._cost.round_s(self._num_sessions + num_drafted, self._num_sessions, self._context)

    def best_at(self, round_s: float) -> _Best:
        """The best number of tokens when they are put in the order that holds for a round of `round_s`."""
        gains = self._gains(round_s)
        flat = gains.ravel()
        order = np.flatnonzero(flat > self._least_gain)
        order = order[np.argsort(-flat[order], kind="stable")][: self._budget]
        owner = order // gains.shape[1]
        low, high = 0, owner.size
        while True:
            nums, lengths = _prefixes(owner, low, high, len(gains))
            rates, rounds = self._rates(lengths)
            at = int(np.argmax(rates))
            if high - low < len(nums):
                return _Best(int(nums[at]), lengths[at], float(rates[at]), float(rounds[at]), gains)
            low, high = int(nums[max(at - 1, 0)]), int(nums[min(at + 1, len(nums) - 1)])

    def _gains(self, round_s: float) -> Floats:
        """What each further token adds to F, on the upper hull, per share of the rounds it comes in; 0 if nothing."""
        rates = self._value / (round_s + self._own)
        gains = np.diff(rates, axis=1)
        if self.waits:
            mean = np.where(self._allowed, (rates[:, 1:] - rates[:, :1]) / self._steps, -np.inf)
            first = mean.argmax(axis=1)[:, None]  # the hull's first step leads here
            gains = np.where(self._steps <= first + 1, np.take_along_axis(mean, first, axis=1), gains)
        gains = np.where(self._allowed & (gains > 0.0), gains, 0.0)
        return gains / self._share[:, None]

    def _rates(self, lengths: Ints) -> tuple[Floats, Floats]:
        """F and T of allocations [num, clients], both [num]."""
        rounds = np.asarray(self.round_s((lengths * self._share).sum(axis=1)))
        cycle = rounds[:, None] + self._own[self._clients, lengths]
        return (self._value[self._clients, lengths] / cycle).sum(axis=1), rounds

    def _width(self, worth: Floats, acceptance: Floats) -> int:
        """Tokens of a draft beyond which none can gain the least that pays."""
        if self._least_gain <= 0.0:
            return self._longest
        useful = (worth > 0.0) & (acceptance > 0.0)
        steps = np.log(self._least_gain * self._idle_s / worth[useful]) / np.minimum(np.log(acceptance[useful]), -1e-9)
        return int(np.clip(steps.max(), 1, self._longest))


def _prefixes(owner: Ints, low: int, high: int, num_clients: int) -> tuple[Ints, Ints]:
    """Numbers of tokens from low to high, all or a few of them, and each as lengths [numbers, num_clients].

    owner [tokens]: whose each token is, the best first.
    """
    if (high - low + 1) * num_clients <= MAX_TRIED:
        taken = np.zeros((high - low + 1, num_clients), dtype=np.int64)
        taken[0] = np.bincount(owner[:low], minlength=num_clients)
        taken[np.arange(1, len(taken)), owner[low:high]] = 1
        return np.arange(low, high + 1), taken.cumsum(axis=0)
    nums = np.linspace(low, high, FEW).astype(np.int64)
    return nums, np.stack([np.bincount(owner[:num], minlength=num_clients) for num in nums.tolist()])


def _largest(gains: Floats, num: int, turns: Turns) -> Ints:
    """The `num` largest gains [clients, width] as lengths; equal ones take turns."""
    least = np.partition(gains, gains.size - num, axis=None)[gains.size - num]
    above: Ints = (gains > least).sum(axis=1)
    return above + turns.share((gains == least).sum(axis=1), num - int(above.sum()))
