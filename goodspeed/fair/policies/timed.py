"""Draft lengths that maximise utility per second: a drafted token has to earn the time that it costs all sessions.

Verify rounds of T seconds follow each other. A session that drafts nothing takes part in all of them. One that drafts S
tokens is away after every verdict, for away(S) = its round trip + S x its drafting time, and then until the round
that is going on has ended (if there are others: half a round on average, and never less than one round in all). So it
gets its expected tokens mu(S) once in T + away(S) seconds; drafting ahead of verdicts hides a part of that
(`cycles.py`). This maximises

    F(S) = sum of w_i U'(X_i) mu_i(S_i) / (T(S) + away_i(S_i)),    T(S) from a cost model

where T(S) is the modelled time of a round with what the sessions bring to it, each in its share of the rounds:
T / (T + away), or more when the verify node has to wait for drafts. Length 0 is a choice like any other, and a little
more: where sessions share rounds and drafts are waited for, mu(S) of a draft counts less by a MARGIN.

For a given T each client's term rises concavely in S up to its maximum, but for the first step (being away at all) and
behind a length that is just made ahead in time: the upper hull bridges both. So tokens are put in the order of what
they add, and every number of them is tried in F itself, with the T that it makes; then once more in the order that
holds for that T. Where drafts are there at once (away = 0) the order does not depend on T, and the result is exact
(among a thousand sessions the numbers that are tried close in on the best one; F has one maximum there). Otherwise it
is near: the tests compare it with a search over all allocations.

Knows nothing about rounds or messages: arrays in, lengths out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from goodspeed.fair.policies.base import Floats, Ints
from goodspeed.fair.policies.cycles import Cycles, Timing
from goodspeed.fair.policies.tie_breaking import TieBreaker

MAX_WIDTH = 1 << 10
"""No draft is longer (`messages.MAX_DRAFT`)."""

SMALL = 1e-12  # keeps logarithms of 0 and divisions by 0 away
MARGIN = 0.05
"""Where sessions share rounds, a draft that is waited for must promise this fraction more than plain decoding: what is
known of both may err by as much, and drafting has costs that no model here knows (processes that share caches and
cores). More protects these; less is better where every draft node has a machine of its own: see the log."""

MAX_PASSES = 4
MAX_BRIDGES = 4  # of a hull; what rises again beyond them is left out
NEAR = 0.02  # relative change of T that does not change the order of tokens
MAX_TRIED = 1 << 12  # numbers of tokens times clients that are all tried
GOLDEN = 0.618
add = np.add.reduce  # what `sum` of few numbers is called takes as long as summing them
CLOSE = 0.03  # of the number of tokens: so near the best one, F differs by nothing that matters


class Cost(Protocol):
    """Modelled seconds of a verify round (`goodspeed.fair.latency`)."""

    def round_s(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any:
        """num_tokens: all tokens fed, number or array; context_tokens: cached ones of all sessions together."""
        ...


class TimedAllocation:
    """Allocates one round after the other; the round's time found last is where the next search begins."""

    def __init__(self, cost: Cost, ties: TieBreaker) -> None:
        self._cost = cost
        self._ties = ties
        self._round_s = 0.0

    def allocate(self, worth: Floats, acceptance: Floats, caps: Ints, timing: Timing, budget: int) -> Ints:
        """worth: w U'(X) of each client -> draft lengths, int64 [clients], together at most `budget`."""
        if not caps.any() or not budget:
            return np.zeros_like(caps)
        search = _Search(worth, acceptance, caps, timing, budget, self._cost)
        best = search.best_at(self._round_s or search.idle_s)
        for _ in range(MAX_PASSES - 1):
            settled = abs(best.round_s - self._round_s) <= NEAR * best.round_s
            self._round_s = best.round_s
            if settled or not search.waits:
                break
            best = max(best, search.best_at(self._round_s), key=lambda found: found.rate)
        return search.lengths(best, self._ties)


@dataclass(frozen=True, slots=True)
class _Best:
    num: int  # drafted tokens
    rate: float  # F
    round_s: float  # T
    gains: Floats  # [cells] by which the tokens were put in order


class _Search:
    """One allocation problem, with the parts that do not depend on T.

    A *cell* is a length that a client might get; those of one client lie side by side, from 0 to the longest that can
    pay.
    """

    def __init__(self, worth: Floats, acceptance: Floats, caps: Ints, timing: Timing, budget: int, cost: Cost) -> None:
        self._cost, self._budget = cost, budget
        self._context_len = timing.context_len
        self.num_clients = caps.size
        context = float(timing.context_len.sum())
        nums = np.arange(self.num_clients, self.num_clients + budget + 1)
        self._rounds = cost.round_s(nums, self.num_clients, context) + np.zeros(nums.size)  # T by drafted tokens
        self.idle_s = float(self._rounds[0])
        self.waits = bool(timing.draft_s_per_token.any() or timing.round_trip_s.any())
        most = int(min(caps.max(), MAX_WIDTH))
        self._least_worth = self._least(worth, timing, most)
        longest = np.minimum(caps, self._useful_lengths(worth, acceptance, most))
        self._first = (longest + 1).cumsum() - longest - 1  # [clients] cell of length 0
        self._owner = np.repeat(np.arange(self.num_clients), longest + 1)  # [cells]
        self._cell = np.arange(len(self._owner))
        self._length = self._cell - self._first[self._owner]
        alpha = np.minimum(acceptance, 1.0 - SMALL)
        log_alpha = np.log(np.maximum(alpha, SMALL))
        tokens = np.expm1((self._length + 1.0) * log_alpha[self._owner])
        self._value = (-worth / (1.0 - alpha))[self._owner] * tokens  # w U'(X) mu(S)
        if self.waits:
            margin = MARGIN * (1.0 - 1.0 / self.num_clients)
            self._value = np.where(self._length > 0, (1.0 - margin) * self._value, self._value)
        self._cycles = Cycles(timing, log_alpha, self._owner, self._length)

    def best_at(self, round_s: float) -> _Best:
        """Returns the best number of tokens, in the order that holds for a round of `round_s`."""
        gains = self._gains(round_s)
        order = np.flatnonzero(gains > (self._least_worth / self.idle_s if self.waits else self._least_worth))
        order = order[np.argsort(-gains[order], kind="stable")][: self._budget]
        if self.waits:
            return self._best_prefix(self._owner[order], gains, round_s)
        worth = self._value[self._first].sum() + np.concatenate(([0.0], gains[order].cumsum()))
        rates = worth / self._rounds[: len(worth)]
        num = int(np.argmax(rates))
        return _Best(num, float(rates[num]), float(self._rounds[num]), gains)

    def lengths(self, best: _Best, ties: TieBreaker) -> Ints:
        """Returns the draft lengths of the best tokens; ties rotate."""
        if not best.num:
            return np.zeros(self.num_clients, dtype=np.int64)
        least = np.partition(best.gains, best.gains.size - best.num)[best.gains.size - best.num]
        above = np.bincount(self._owner[best.gains > least], minlength=self.num_clients)
        tied = np.bincount(self._owner[best.gains == least], minlength=self.num_clients)
        return above + ties.share(tied, best.num - int(above.sum()))

    def _best_prefix(self, owner: Ints, gains: Floats, round_s: float) -> _Best:
        """Tries every number of tokens; owner [tokens]: the client of each, the best first.

        Where there are too many, a golden-section search narrows them down first.
        """
        low, high = 0, owner.size
        left, right = high - int(GOLDEN * high), int(GOLDEN * high)
        tried: dict[int, float] = {}
        while (high - low + 1) * self.num_clients > MAX_TRIED and high - low > CLOSE * high:
            for num in (left, right):
                if num not in tried:
                    tried[num] = float(self._rates(self._prefixes(owner, num, num), round_s)[0][0])
            if tried[left] >= tried[right]:
                high, right = right, left
                left = high - round(GOLDEN * (high - low))
            else:
                low, left = left, right
                right = low + round(GOLDEN * (high - low))
        lengths = self._prefixes(owner, low, high) if not tried else self._prefixes(owner, left, left)
        rates, rounds = self._rates(lengths, round_s)
        at = int(np.argmax(rates))
        return _Best(int(lengths[at].sum()), float(rates[at]), float(rounds[at]), gains)

    def _prefixes(self, owner: Ints, low: int, high: int) -> Ints:
        """Returns the first `low` to `high` tokens as lengths [high - low + 1, clients]."""
        taken = np.zeros((high - low + 1, self.num_clients), dtype=np.int64)
        taken[0] = np.bincount(owner[:low], minlength=self.num_clients)
        if high > low:
            taken[np.arange(1, len(taken)), owner[low:high]] = 1
        return taken.cumsum(axis=0)

    def _gains(self, round_s: float) -> Floats:
        """Returns what each further token adds to F on the upper hull, per share of the rounds it comes in [cells].

        Without waiting it is what the token adds to the sum of worth; 0 if it adds nothing.
        """
        if not self.waits:
            return np.where(self._length > 0, np.diff(self._value, prepend=0.0), 0.0)
        cycle = self._cycles.seconds(slice(None), round_s)
        steps = self._hull(self._value / cycle)
        return np.where(steps > 0.0, steps, 0.0) * (cycle / round_s)

    def _hull(self, rates: Floats) -> Floats:
        """Returns the steps of the upper hull of every client's rates over its lengths [cells], as far as it rises.

        A bridge leads over the first step. Where drafts are made ahead there may be a dip after it, behind a length
        that is just made in time; then further bridges lead over those.
        """
        steps = np.zeros_like(rates)
        np.subtract(rates[1:], rates[:-1], out=steps[1:])
        steps[self._first] = 0.0
        at, beyond = self._first, self._length
        for _ in range(MAX_BRIDGES if self._cycles.dips else 1):
            mean = (rates - rates[at][self._owner]) / np.maximum(beyond, 1)
            mean[beyond < 1] = -np.inf
            steepest = np.maximum.reduceat(mean, self._first)[self._owner]
            peaks = np.flatnonzero(mean == steepest)
            at = at.copy()
            at[self._owner[peaks]] = peaks
            left = self._cell - at[self._owner]
            steps = np.where((beyond > 0) & (left <= 0), steepest, steps)
            beyond = left
            if not self._cycles.dips or not self._rises_again(steps, beyond):
                return steps
        return np.where(beyond > 0, 0.0, steps) if self._cycles.dips else steps

    def _rises_again(self, steps: Floats, beyond: Ints) -> bool:
        """Whether, beyond the bridges, some step is higher than the one before it."""
        return bool(((beyond[1:] > 0) & (steps[1:] > np.maximum(steps[:-1], 0.0))).any())

    def _rates(self, lengths: Ints, round_s: float) -> tuple[Floats, Floats]:
        """Returns F and T of allocations [num, clients], both [num]; shares are those of rounds of `round_s`."""
        cells = self._first + lengths
        often = 1.0 / self._cycles.seconds(cells, round_s)
        between = np.maximum(round_s, 1.0 / add(often, 1))  # rounds, or the waits for them
        share = np.minimum(between[:, None] * often, 1.0)
        num = add(share, 1)
        rounds = self._cost.round_s(num + add(share * lengths, 1), num, share @ self._context_len) + np.zeros(num.size)
        cycles = self._cycles.seconds(cells, rounds[:, None])
        return add(self._value[cells] / cycles, 1), rounds

    def _least(self, worth: Floats, timing: Timing, longest: int) -> float:
        """Returns the worth of a token times its acceptance below which it cannot pay.

        Its price is dT/dtoken times F over a cycle, and F is at least its value without any draft.
        """
        slowest_s = 2.5 * self.idle_s + float(timing.round_trip_s.max() + timing.draft_s_per_token.max() * longest)
        return float((self._rounds[1] - self.idle_s) * add(worth)) / slowest_s

    def _useful_lengths(self, worth: Floats, acceptance: Floats, longest: int) -> Ints:
        """Returns each client's longest length whose last token can pay (`_least`)."""
        ratio = np.minimum(self._least_worth / np.maximum(worth, SMALL * SMALL), 1.0)
        slope = np.minimum(np.log(np.maximum(acceptance, SMALL)), -SMALL)
        with np.errstate(divide="ignore"):  # a free token: log(0) / slope is endless, and cut
            lengths: Ints = np.minimum(np.log(ratio) / slope, longest).astype(np.int64)
        return lengths
