"""Bounds the prefill of a round by its time while other sessions decode: one long prompt must not slow all texts.

A row of a prompt costs time, and more of it behind a long context. The profile of the forward pass knows only rows
without context, if there is one at all. So finished rounds teach what rows cost beyond that, and how much slower the
machine is than modelled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair.refined import LONGEST_S, SHORTEST_S, Refined
from goodspeed.fair.round_time import Linear
from verify_node.scheduler.round import Entry, Round, context_read
from verify_node.session.session import Session

LONGEST = 2.7
"""Longest round with prefill, in rounds of the same sessions without. Wanted are 3 at most, and rounds scatter by a
tenth. So prompts get almost two thirds of the time, and the texts beside them go on at a third of their pace."""

FIRST_CONTEXT = 1024.0
"""Cached tokens whose attention takes as long as the rest of a row, before it is measured: so for models of 5 to 135
million weights on a CPU. It is more for large ones, where the first rounds then prefill too little."""

FIRST = 1.0, 1.0 / FIRST_CONTEXT
"""First costs of a row, and of a row for each token before it: in rows of the profile."""

MOST_ROWS = 1 << 16
"""More rows than any round has room for, so that few numbers are tried."""

FIRST_ROWS = 32.0
"""Rows that double the time of a round, before that is measured, where there is no profile: 20 on a CPU core, hundreds
on a GPU."""

UNMEASURED = 16
"""Rounds with prefill after which one prefills nothing, so that the time of such a round stays known; so does the one
after an unusual round."""

MOST_SURPRISE = log(4.0)
"""Largest logarithm of a round's time over its prediction in what is learned from it."""

LEAST = np.array([0.0, *(cost / 64 for cost in FIRST)])
"""Least scale, and least that anything is found to cost: from there it rises in a few rounds."""

SCALE_ALONE = np.array([1.0, 0.0, 0.0])  # shares, as in `_learn`, of a round without prefill

FIRST_DOUBT = np.array([0.1, 1.0, 1.0])
"""Variances of the logarithms of the scale and of the costs of `FIRST`, as known at first."""

DRIFT = np.array([0.01, 0.002, 0.002])
"""Variances of what these change by in a round, where they make up all of it."""

NOISE = 0.01
"""Variance of the logarithm of a round's time, which scatters by a tenth."""

BEYOND_NOISE = exp(-2.0 * sqrt(NOISE))
"""Share of a longer time than predicted that is not taken for noise."""

UNUSUAL = 3.0
"""Errors, relative to the usual one, beyond which a round counts only so much. A real change repeats itself: then all
that the round shows is in doubt."""

MOST_DOUBT = 1.0


@dataclass(frozen=True, slots=True)
class Room:
    """The prefill that fits into a round, and what it costs; both in rows of the profile, without context."""

    rows: float = inf
    row: float = 1.0  # of each token
    context: float = 0.0  # of each token, for each token before it

    def cost_of(self, entry: Entry) -> float:
        return self.row * entry.num_prefill + self.context * attended(entry.start, entry.num_prefill)

    def most(self, left: float, start: int) -> float:
        """Returns the most tokens from position `start` on that cost at most `left`; infinity: no bound."""
        if left == inf:
            return inf
        each = self.row + self.context * start
        most = max(0.0, left) / each
        return max(0.0, left) / (each + self.context * most / 2)  # a little less than the root of the equation


UNBOUNDED = Room()
"""Nobody decodes: `RoundLimits.most_prefill` alone bounds prefill."""


class Prefill:
    """Learns what prefill costs, and bounds that of the next round."""

    def __init__(self, cost: Refined, pool: PagePool) -> None:
        """cost: its profile is used, not what it learned from all rounds, since long prompts would distort that."""
        self.room = UNBOUNDED  # of the next round
        self._pool, self._cost = pool, cost
        self._per_row = cost.reads_per_row
        self._model = cost.model if cost.profiled else Linear(fixed_s=1.0, token_s=1.0 / FIRST_ROWS)
        scale = 1.0 if cost.profiled else 0.0  # of the model, 0: unknown
        self._known = np.array([scale, *FIRST])  # and costs as in `Room`
        cost.learn_prompts(*FIRST)
        self._doubt = np.diag(FIRST_DOUBT)  # covariances of their logarithms
        self._unusual = [0.0, 0.0]  # surprise of the latest round without prefill that counts, and with, if unusual
        self._num_unmeasured = 0

    def begin(self, ready: Sequence[Session], awaited: Sequence[Session] = ()) -> None:
        """Sets the room of the next round. ready: sessions that it can move. awaited: those that wait for drafts."""
        decoding = [one for one in (*ready, *awaited) if self._decodes(one)]
        if not decoding:
            self.room = self._room(inf)
        elif self._num_unmeasured >= UNMEASURED and 0 < sum(map(self._decodes, ready)) < len(ready):
            self._num_unmeasured = 0  # whatever becomes of this round
            self.room = self._room(0.0)
        else:
            number, context = len(decoding), sum(len(session.tokens) for session in decoding)
            longest_s = LONGEST * self._model.round_s(number, number, context)
            self.room = self._room(max(1, self._model.tokens_in(longest_s, number, context, MOST_ROWS) - number))

    def _decodes(self, session: Session) -> bool:
        return len(session.tokens) - self._pool.length(session.session_id) <= 1

    def _room(self, rows: float) -> Room:
        return Room(rows, *self._known[1:].tolist())

    def observe(self, done: Round, seconds: float, num_spare: float = 0.0) -> None:
        """Learns from a finished round. seconds: of the target. num_spare: rows that it computed beside its tokens."""
        if not SHORTEST_S < seconds < LONGEST_S:
            return  # a clock error must not stop a node
        read = [entry for entry in done.entries if entry.num_prefill]
        prefills = [(entry.num_prefill, attended(entry.start, entry.num_prefill)) for entry in read]
        plain = [entry for entry in done.entries if not entry.num_prefill]
        shape = len(done.entries), context_read(plain, per_row=self._per_row)
        num_decided = done.num_tokens - sum(rows for rows, _ in prefills) + num_spare
        usual_s = max(self._model.round_s(num_decided, *shape), SHORTEST_S)
        self._num_unmeasured = self._num_unmeasured + bool(plain) if prefills else 0
        if not prefills:
            self._known[0] = self._known[0] or seconds / usual_s
        if self._known[0]:
            measured_s = seconds / float(self._known[0])
            round_s, share, shares = usual_s, 0.0, SCALE_ALONE
            if prefills:
                rows = self._known[1:] * np.array(prefills).sum(axis=0)
                num_rows = float(rows.sum())
                round_s = max(self._model.round_s(num_decided + num_rows, *shape), usual_s)
                if round_s > usual_s:
                    share = 1.0 - usual_s / max(round_s, measured_s * BEYOND_NOISE)  # of prefill
                shares = np.array([1.0, *(share * rows / (num_rows or 1.0))])
            self._learn(log(measured_s / round_s), shares, has_share=bool(share))
            if share and self._unusual[True]:
                self._num_unmeasured = UNMEASURED  # a round without prefill is to show whether the machine is slower

    def _learn(self, surprise: float, shares: NDArray[np.float64], *, has_share: bool) -> None:
        """Corrects the scale and what prefill costs by a Kalman filter, which tells them apart by rounds with and
        without prefill.

        If rounds without prefill alone determined the scale, and rounds with prefill the costs, rows would seem costly
        when the machine became slower; rounds would have few of them, and these would seem costlier still: prompts
        were once read token by token.

        surprise: logarithm of the round's time over its prediction. shares: 1.0, and of each cost in the longer of both
        times, less noise, so that costs that are far too low rise at once. has_share: prefill takes time in it.
        """
        usual = sqrt(NOISE + shares @ self._doubt @ shares)
        is_unusual, is_repeated = abs(surprise) > UNUSUAL * usual, surprise * self._unusual[has_share] > 0.0
        self._unusual[has_share] = surprise if is_unusual else 0.0
        most = MOST_SURPRISE
        if is_unusual and is_repeated:
            self._doubt += np.diag((shares > 0.0) * MOST_DOUBT)
        else:
            most = min(most, UNUSUAL * usual)
        pulls = self._doubt @ shares
        gains = pulls / (NOISE + shares @ pulls)
        self._known = np.maximum(self._known * np.exp(gains * min(max(surprise, -most), most)), LEAST)
        self._cost.learn_prompts(*self._known[1:].tolist())
        self._doubt += np.diag(shares**2 * DRIFT) - np.outer(gains, pulls)
        bound = np.minimum(1.0, np.sqrt(MOST_DOUBT / self._doubt.diagonal()))
        self._doubt *= np.outer(bound, bound)


def attended(start: int, num_tokens: int) -> float:
    """Returns the tokens that each token of a chunk from position `start` on attends to, added up."""
    return num_tokens * (start + num_tokens / 2)
