"""An upper bound on the acceptance rate, from the delivered drafted tokens, which a client cannot forge.

Eq. (3) counts every drafted position. Positions after a rejection count, too, and there the target is conditioned on
the draft's own tokens. A client can exploit this: it drafts a first token that is always wrong, then a text with an
obvious continuation. All tokens but the first "agree", and none is delivered, yet Eq. (5) rates such useless drafts
highest. So estimates are capped at the rate that deliveries leave possible.
"""

import math
from dataclasses import dataclass

MEMORY = 200.0
"""Number of tokens after which evidence decays, because texts change."""

INITIAL_TOKENS = 50.0
"""Most tokens that a new session inherits from its client's counts."""

DOUBT = math.log(1e4)
"""Confidence: at each look the true rate exceeds `most` with a probability of at most 1 in 10,000, so that honest
clients are rarely limited."""


@dataclass(slots=True)
class AcceptanceBound:
    """Smoothed counts of one session, or of all sessions of a client, and the resulting bound."""

    num_tried: float = 0.0  # tokens accepted, or rejected first in their draft
    num_accepted: float = 0.0

    def observe(self, num_accepted: int, num_drafted: int) -> None:
        """Updates the counts with a verified draft."""
        num_tried = min(num_accepted + 1, num_drafted)
        keep = max(0.0, 1.0 - num_tried / MEMORY)
        self.num_tried = keep * self.num_tried + num_tried
        self.num_accepted = keep * self.num_accepted + min(num_accepted, num_drafted)

    @property
    def most(self) -> float:
        """Largest rate that the counts leave possible, by Bernstein's bound; 1 while there are few counts."""
        if self.num_tried <= DOUBT:
            return 1.0
        share, doubt = self.num_accepted / self.num_tried, DOUBT / self.num_tried
        return min(1.0, share + math.sqrt(2.0 * share * (1.0 - share) * doubt) + doubt)

    def begin(self) -> "AcceptanceBound":
        """Returns the initial counts of a new session of this client."""
        share = min(1.0, INITIAL_TOKENS / self.num_tried) if self.num_tried else 0.0
        return AcceptanceBound(share * self.num_tried, share * self.num_accepted)
