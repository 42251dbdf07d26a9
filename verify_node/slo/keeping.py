"""What one round does for texts with objectives, before drafted tokens are chosen by what they bring.

The mathematics is in `owing.py`. Knows nothing about sessions, prices, memory or verdicts.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from goodspeed.slo.owed import owed_tokens
from verify_node.slo.ledger import Ledger
from verify_node.slo.owing import Owing, needs, tightest


class Text(NamedTuple):
    """A text in the round that has objectives."""

    key: bytes
    ledger: Ledger
    client: str


class Keeping:
    """Which texts are owed what by one round."""

    def __init__(self, texts: Iterable[Text], weights: Mapping[str, float], shortest_s: float, now: float) -> None:
        """weights: of all clients in the round, by name. shortest_s: seconds of the round without drafted tokens."""
        self._texts = {text.key: text for text in texts}
        self._weights = weights
        self._shortest_s = shortest_s
        self._now = now
        standings = {key: text.ledger.standing(now) for key, text in self._texts.items()}
        self.owed_more = frozenset(  # keys of texts that one token does not bring up to their TPOT
            key for key, one in standings.items() if one is not None and owed_tokens(*one, shortest_s) > 1.0
        )
        self._most_s, at = tightest(standings.values(), shortest_s)
        self._share_left = 1.0  # share of the budget that the others keep, however short the round has to be
        if at is not None:
            self._share_left -= weights[list(self._texts.values())[at].client] / sum(weights.values())

    def needs(self, path_odds: Mapping[bytes, Sequence[float]], budget: int) -> dict[bytes, float]:
        """`Candidate.need` of texts. path_odds: of the tokens that are drafted for each, the highest first.

        A text that nothing was drafted for, or that is owed no more than one token, is left out or needs 0.
        """
        texts = [self._texts[key] for key in path_odds if key in self._texts]
        owing = [Owing(text.ledger, text.client, path_odds[text.key]) for text in texts]
        needed = needs(owing, self._weights, budget, self._shortest_s, self._now)
        return {text.key: need for text, need in zip(texts, needed, strict=True)}

    def most_drafted(self, seconds: Sequence[float], budget: int) -> int:
        """Most drafted tokens that keep the round short enough. seconds: of the round, by their number.

        The client whose text is the tightest takes no more from the others in this way than its weight's share: else
        one that asks for a TPOT just above a round's time would take all drafts from everybody.
        """
        if self._most_s == inf:
            return budget
        return min(budget, max(int(self._share_left * budget), bisect_right(seconds, self._most_s) - 1))


NOBODY = Keeping((), {}, 0.0, 0.0)
"""No text has objectives, or nobody looks at them."""
