"""A test, valid at any time, of whether a client's drafts were drawn from the distributions that it sent.

The test bets against the claim. Each bet multiplies its stake by a factor that has mean 1 if the token was drawn from
the sent distribution (`evidence.py`), so the stake is a martingale while the client is honest. By Ville's inequality it
reaches 1 / FALSE_ALARM with probability at most FALSE_ALARM, however long the client drafts and however often the test
looks (Ville 1939; Ramdas, Grünwald, Vovk, Shafer 2023, "Game-theoretic statistics and safe anytime-valid inference").

A stake lost during years of honesty would take years to win back. So the stake is not bet at once: each draft adds a
part of a reserve. The parts shrink, and sum to 1 (a mixture over the time at which lying began, as in e-detectors:
Shin, Ramdas, Rinaldo 2023). Bets on several kinds of lies share the stake.
"""

import math
from collections.abc import Sequence

FALSE_ALARM = 1e-6
"""Upper bound of the probability that an honest client is ever taken for a liar, over all of its drafts."""

MAX_GAIN = 300.0
"""Largest logarithm of one draft's factor; more than needed, without overflow."""


class Suspicion:
    """The stakes of the bets against one client. `proven` is final."""

    def __init__(self) -> None:
        self.proven = False
        self.num_drafts = 0
        self._stakes: list[float] = []

    @property
    def stake(self) -> float:
        """Present value of an initial stake of 1, reserve included. Its expectation is 1 for an honest client."""
        won = sum(self._stakes) / len(self._stakes) if self._stakes else 0.0
        return won + _kept(self.num_drafts)

    def observe(self, evidence: Sequence[float]) -> bool:
        """Updates the stakes with one draft; returns whether this draft completes the proof that the client lies.

        evidence: natural logarithm of each bet's factor, in the same order for every draft.
        """
        if self.proven or not evidence:
            return False
        staked = _kept(self.num_drafts) - _kept(self.num_drafts + 1)
        self.num_drafts += 1
        stakes = self._stakes or [0.0] * len(evidence)
        self._stakes = [
            (stake + staked) * math.exp(min(gained, MAX_GAIN)) for stake, gained in zip(stakes, evidence, strict=True)
        ]
        self.proven = self.stake >= 1 / FALSE_ALARM
        return self.proven


def _kept(num_drafts: int) -> float:
    """Returns the part of the initial stake that is still in reserve after num_drafts drafts."""
    return 1.0 / (1.0 + math.log1p(num_drafts))
