"""The cycle time of a client: seconds from one verdict to the next, by its draft's length and a round's time.

A draft that is made afresh takes the round trip and its drafting, and then waits until the round that is going on has
ended (if there are others: half a round on average, and never less than one round in all).

While a draft of S tokens is in flight its draft node may go on as if all of it were accepted. That takes S + 2 tokens'
worth of drafting (catching up, a guess, the next draft), while the round goes on. It is of use where the whole draft
and the guess are accepted, alpha^(S+1), and where it is on its way before the verdict is there; else the next draft
is made afresh. After a fresh draft it has the round and the round trip for that. After one that was itself made ahead
there is the round only (and what that one was late by), and it takes the round trip after all: the draft node goes on
when it has the verdict.

Knows nothing about utilities or budgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from goodspeed.fair.policies.base import Floats, Ints, check_values

SMALL = 1e-12
IN_TIME = 0.1
"""What is made ahead in so much less than the time that it has (as a share) is surely in time; in so much more, not."""

WAITS = 0.5
SELDOM, OFTEN = 0.25, 0.5
"""Draft nodes stop drafting ahead where it seldom comes true: below 0.3 of the verdicts, as they find it in a handful.
So none at all do below the first chance, all do above the second."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times and chances of each session; arrays [clients]."""

    draft_s_per_token: Floats
    round_trip_s: Floats
    context_len: Floats
    ahead: Floats  # share of the drafts made ahead that could be of use, and are

    def check(self) -> None:
        """Raises ConfigError for a value out of range, naming it."""
        for name in ("draft_s_per_token", "round_trip_s", "context_len"):
            values = getattr(self, name)
            check_values(name, values, (values >= 0.0) & (values < np.inf), "0 or more, and finite")
        check_values("ahead", self.ahead, (self.ahead >= 0.0) & (self.ahead <= 1.0), "within 0 and 1")


class Cycles:
    """Cycle times of cells; a cell is a client, `owner`, with a draft `length`. Arrays [cells]."""

    def __init__(self, timing: Timing, log_alpha: Floats, owner: Ints, length: Ints) -> None:
        self._others = 1.0 - 1.0 / timing.ahead.size
        token_s = timing.draft_s_per_token[owner]
        self._afresh_s: Floats = np.where(length > 0, timing.round_trip_s[owner] + token_s * length, 0.0)
        self._odds: Floats | None = None
        self.dips = bool(timing.ahead.any())  # a longer draft may be worth less than both a shorter and a longer one
        if self.dips:
            self._ahead_s = token_s * (length + 2)
            self._trip_s = np.maximum(timing.round_trip_s[owner] - token_s, 0.0)  # but for catching up
            comes_true = np.exp(log_alpha[owner] * (length + 1))
            self._odds = np.where(length > 0, timing.ahead[owner] * comes_true * willing(comes_true), 0.0)

    def seconds(self, cells: Any, round_s: Any) -> Floats:
        """Returns the cycle time with rounds of `round_s`; both broadcast. cells: indexes, or a slice."""
        away = self._away(self._afresh_s[cells], round_s)
        if self._odds is not None:
            away = self._with_ahead(self._odds[cells], away, self._ahead_s[cells], self._trip_s[cells], round_s)
        cycle: Floats = round_s + away
        return cycle

    def _with_ahead(self, odds: Floats, afresh: Floats, ahead_s: Floats, trip_s: Floats, round_s: Any) -> Floats:
        """Returns the mean over fresh drafts, drafts ahead after a fresh one, and drafts ahead after one made ahead."""
        waits_s = WAITS * self._others * round_s
        late = np.maximum(ahead_s - round_s, 0.0)
        later = np.maximum(trip_s + ahead_s - round_s - late, 0.0)
        first = odds * in_time(ahead_s, round_s + waits_s + trip_s)
        again = odds * in_time(ahead_s, round_s + late + np.where(late > 0.0, waits_s, 0.0))
        share = (1.0 - again) / (1.0 - again + first + SMALL)  # of the drafts made afresh
        ahead = share * first * self._away(late, round_s) + (1.0 - share) * again * self._away(later, round_s)
        mean: Floats = share * afresh + ahead
        return mean

    def _away(self, drafting_s: Floats, round_s: Any) -> Floats:
        """Returns the seconds until a draft's round begins; 0 where drafting takes no time."""
        late: Floats = drafting_s + np.maximum(round_s - drafting_s, WAITS * round_s) * self._others
        return np.where(drafting_s > 0.0, late, 0.0)


def willing(comes_true: Any) -> Any:
    """Returns the probability that a draft node drafts ahead, given how often that comes true."""
    return np.clip((comes_true - SELDOM) / (OFTEN - SELDOM), 0.0, 1.0)


def in_time(ahead_s: Any, time_s: Any) -> Any:
    """Returns the probability that a draft made ahead is sent before the verdict arrives."""
    return np.clip(0.5 + (1.0 - ahead_s / np.maximum(time_s, SMALL)) / (2.0 * IN_TIME), 0.0, 1.0)
