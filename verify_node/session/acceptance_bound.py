"""An upper bound on the acceptance rate, from the drafted tokens that were delivered: a client cannot forge those.

Eq. (3) counts every drafted position, after a rejection too, where the draft's own tokens are what the target is asked
to go on from. Whoever chooses those can make what follows easy: a first token that is never right, and then a text
that everybody would go on with alike. All but the first "agree", none is delivered, and as long drafts that bring
nothing look to Eq. (5) as the best there are. So no estimate is believed beyond what deliveries leave possible.
"""

import math
from dataclasses import dataclass

MEMORY = 200.0
"""Tokens that count; older ones are forgotten, since texts change."""

INITIAL_TOKENS = 50.0
"""Tokens of its client's counts that a new session takes over, at most."""

DOUBT = math.log(1e4)
"""The true share is more than `most` once in 10,000: it must never hold up who is honest."""


@dataclass(slots=True)
class AcceptanceBound:
    """Smoothed counts of one session, or of all of a client's sessions, and the bound that follows."""

    num_tried: float = 0.0  # accepted, or the first that was rejected
    num_accepted: float = 0.0

    def observe(self, num_accepted: int, num_drafted: int) -> None:
        """Learns from a draft that was verified."""
        num_tried = min(num_accepted + 1, num_drafted)
        keep = max(0.0, 1.0 - num_tried / MEMORY)
        self.num_tried = keep * self.num_tried + num_tried
        self.num_accepted = keep * self.num_accepted + min(num_accepted, num_drafted)

    @property
    def most(self) -> float:
        """The largest share that these counts leave possible, by Bernstein's bound; 1 while little is known."""
        if self.num_tried <= DOUBT:
            return 1.0
        share, doubt = self.num_accepted / self.num_tried, DOUBT / self.num_tried
        return min(1.0, share + math.sqrt(2.0 * share * (1.0 - share) * doubt) + doubt)

    def begin(self) -> "AcceptanceBound":
        """The counts that a new session of this client begins with."""
        share = min(1.0, INITIAL_TOKENS / self.num_tried) if self.num_tried else 0.0
        return AcceptanceBound(share * self.num_tried, share * self.num_accepted)
