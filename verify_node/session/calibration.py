"""Calibration: the share of a client's drafted tokens that are accepted, by the probability claimed for them.

A draft node knows how sure it is of each token, and not how often it is right when it is so sure; or it lies. So its
claims are sorted into buckets, and each bucket counts its hits. A bucket's probabilities are (hits + k p) / (tries +
k), with p the probability that is claimed: a claim is believed until a handful of tokens tell better. A higher claim
never means lower probabilities (pool adjacent violators).
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from goodspeed.wire import probabilities
from goodspeed.wire.fields import DraftSource

ClaimedOf: TypeAlias = DraftSource | Literal["alternative"]
"""Kinds of tokens with claims of their own: those of a source, or in trees those beside the first choices."""

PRIOR_TRIES = 4.0
"""k: the tries that a claim counts for."""

UNSEEN = 0.1
"""Tries that a bucket counts for beside its own where neighbours are pooled: what was seen of one outweighs what is
claimed in another, so whoever was wrong when sure is not believed when less sure, either."""

MEMORY = 500.0
"""Tries of a bucket that count; older ones are forgotten, since texts change."""

BOUNDS = (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Least claimed probabilities of each bucket but the last. Narrow where it matters: path probabilities are products of
high ones."""

NUM_BUCKETS = len(BOUNDS) + 1


def _bucket(claimed: float) -> int:
    return next((number for number, least in enumerate(BOUNDS) if claimed >= least), len(BOUNDS))


BUCKETS = bytes(map(_bucket, probabilities.PROBABILITIES))
"""The bucket of each probability code."""

CLAIMED = tuple(
    sum(each) / len(each)
    for each in (
        [one for one, bucket in zip(probabilities.PROBABILITIES, BUCKETS, strict=True) if bucket == number]
        for number in range(NUM_BUCKETS)
    )
)
"""The mean of the probability that a bucket's codes claim."""


@dataclass(slots=True)
class Calibration:
    """Hits and tries of one client's tokens of one source, by the bucket of the claimed probabilities."""

    hits: list[float] = field(default_factory=lambda: [0.0] * NUM_BUCKETS)
    tries: list[float] = field(default_factory=lambda: [0.0] * NUM_BUCKETS)
    _probabilities: list[float] | None = None  # of each bucket; falls; None: to be solved for

    def probabilities(self, codes: bytes) -> list[float]:
        """The probability that each token is accepted given those before it, from the claimed codes."""
        if self._probabilities is None:
            self._probabilities = self._solve()
        known = self._probabilities
        return [known[bucket] for bucket in codes.translate(BUCKETS)]

    def observe(self, codes: bytes, num_accepted: int) -> None:
        """The first num_accepted of the tokens with these codes were accepted; nothing is known after the next one."""
        for place, code in enumerate(codes[: num_accepted + 1]):
            bucket = BUCKETS[code]
            keep = 1.0 - 1.0 / MEMORY
            self.tries[bucket] = keep * self.tries[bucket] + 1.0
            self.hits[bucket] = keep * self.hits[bucket] + (place < num_accepted)
        self._probabilities = None

    def _solve(self) -> list[float]:
        """Shrinks each bucket towards its claim, then pools neighbours until higher claims have no lower values."""
        pools: list[
            tuple[float, float, int]
        ] = []  # weighted sum of probabilities, weight, number of buckets; probabilities fall
        for hits, tries, claimed in zip(self.hits, self.tries, CLAIMED, strict=True):
            weight, number = tries + UNSEEN, 1
            total = weight * (hits + PRIOR_TRIES * claimed) / (tries + PRIOR_TRIES)
            while pools and pools[-1][0] * weight < total * pools[-1][1]:
                above = pools.pop()
                total, weight, number = total + above[0], weight + above[1], number + above[2]
            pools.append((total, weight, number))
        return [min(1.0, total / weight) for total, weight, number in pools for _ in range(number)]
