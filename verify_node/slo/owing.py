"""What the next round owes to texts with objectives, before anybody else's drafted tokens are chosen.

AdaServe's SLO phase: a text that a single token does not bring up to its TPOT needs accepted drafted tokens (Eqs. 2,
3), those that need most go first, and nobody is given more than a bound (Alg. 2). On top of that no client's needs
exceed its weight's share of the budget: else whoever claims the shortest TPOT would take all of it. AdaSpec's cap (Alg.
3): the round stays as short as texts need that one token keeps on time. Pure; knows nothing about sessions.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from goodspeed.fair.shares import shares
from goodspeed.slo.owed import Standing
from verify_node.slo.ledger import Ledger

CROWDING = 1.2
"""A text's needs may take so many times an equal part of the budget, as in the code of AdaServe's authors."""


class Owing(NamedTuple):
    """A text in the next round that has objectives."""

    ledger: Ledger
    client: str
    path_odds: Sequence[float] = ()  # of its drafted tokens, the highest first


def needs(texts: Sequence[Owing], weights: Mapping[str, float], budget: int, round_s: float, now: float) -> list[float]:
    """What each text's drafted tokens have to bring, as the sum of path odds that `Candidate.need` is.

    weights: of all clients in the round, by name. round_s: seconds of the round. What would exceed a bound, or what the
    text's drafted tokens can bring at most, is cut.
    """
    owed = [text.ledger.owed(now, round_s) - 1.0 for text in texts]
    behind = [index for index, need in enumerate(owed) if need > 0.0]
    each = max(1, int(CROWDING * budget / max(1, len(behind))))
    left = shares(weights, budget)
    found = [0.0] * len(texts)
    for index in sorted(behind, key=lambda index: -owed[index]):
        text, missing = texts[index], owed[index]
        for odds in text.path_odds[: min(each, left[text.client])]:
            if found[index] >= missing:
                break
            found[index] += odds
            left[text.client] -= 1
        found[index] = min(found[index], missing)
    return found


def tightest(standings: Iterable[Standing | None], shortest_s: float) -> tuple[float, int | None]:
    """How long the round may take for all texts to be on time that one token suffices for, and which of them bounds it.

    standings: of each text, in turn; None: it bounds nothing. shortest_s: seconds of the round without drafted
    tokens. A text that is late even so is helped by needs, and must not keep everybody's round short. Without any text
    it is infinite, and nobody's.
    """
    least_s, at = inf, None
    for place, standing in enumerate(standings):
        if standing is not None and shortest_s <= (left_s := standing.left_s) < least_s:
            least_s, at = left_s, place
    return least_s, at
