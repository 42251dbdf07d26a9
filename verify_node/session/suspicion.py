"""A test, valid at any time, of whether a client's drafts were drawn from the distributions that it sent.

Somebody bets against the claim. Each bet is a factor that has mean 1 when the token was drawn from what was sent
(`evidence.py`), so the stake is a martingale while the client is honest. By Ville's inequality it reaches
1 / FALSE_ALARM with probability FALSE_ALARM at most, however long the client drafts and however often one looks (Ville
1939; Ramdas, Grünwald, Vovk, Shafer 2023, "Game-theoretic statistics and safe anytime-valid inference").

A stake that was lost to years of honesty would take years to win back. So it is not staked at once: before each draft
some of what is left is added, ever less, and all of it together is 1 (a mixture over when the lying began, as in
e-detectors: Shin, Ramdas, Rinaldo 2023). Bets on several kinds of lies share the stake.
"""

import math
from collections.abc import Sequence

FALSE_ALARM = 1e-6
"""The probability that an honest client is ever taken for a liar, over all that it will ever draft."""

MAX_FACTOR = math.exp(300.0)
"""The largest factor of one draft; more than is needed, and no overflow."""


class Suspicion:
    """The stakes of the bets against one client. `proven` stays, once it is."""

    def __init__(self) -> None:
        self.proven = False
        self.num_drafts = 0
        self._stakes: list[float] = []

    @property
    def stake(self) -> float:
        """The present worth of a stake of 1; its mean is 1 for an honest client."""
        won = sum(self._stakes) / len(self._stakes) if self._stakes else 0.0
        return won + _kept(self.num_drafts)

    def observe(self, evidence: Sequence[float]) -> bool:
        """Learns from a draft: the logarithm of each bet's factor. True when this draft was the proof."""
        if self.proven or not evidence:
            return False
        staked = _kept(self.num_drafts) - _kept(self.num_drafts + 1)
        self.num_drafts += 1
        stakes = self._stakes or [0.0] * len(evidence)
        self._stakes = [
            (stake + staked) * min(math.exp(min(gained, 300.0)), MAX_FACTOR)
            for stake, gained in zip(stakes, evidence, strict=True)
        ]
        self.proven = self.stake >= 1 / FALSE_ALARM
        return self.proven


def _kept(num_drafts: int) -> float:
    """The part that is not staked after so many drafts."""
    return 1.0 / (1.0 + math.log1p(num_drafts))
