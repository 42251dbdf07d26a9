"""Calibration: the share of a client's drafted tokens that are accepted, by the probability claimed for them.

A draft node knows its confidence in each token, but not how often such tokens are right; it may also lie. So the node's
claims are sorted into buckets, and each bucket counts its hits. A bucket's probability is (hits + k p) / (tries + k),
where p is the claimed probability: a claim is trusted until a handful of tokens give better evidence. k is less for a
node whose claims in all buckets together came true less often than claimed. A higher claim never gets a lower
probability (pool adjacent violators). Where a text's tokens come true more or less often than expected, as in one that
runs in circles, its probabilities are corrected (`TextBias`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import copysign, exp, log
from operator import mul
from typing import Literal, TypeAlias, TypeVar

from goodspeed.drafting.sources import Source
from goodspeed.wire import probabilities

ClaimedOf: TypeAlias = Source | Literal["alternative"]
"""Kinds of tokens that are calibrated separately: by source, and a tree's tokens that are not first choices."""

Floats = TypeVar("Floats", list[float], tuple[float, ...])

PRIOR_TRIES = 4.0
"""k: weight of a claim, in tries, while claims come true."""

UNSEEN = 0.1
"""Prior weight of a bucket, in tries, when neighbours are pooled. One bucket's observations outweigh another's claims:
a client that was wrong when confident is not trusted when less confident."""

MEMORY = 500.0
"""Number of tries after which a bucket's evidence decays, because texts change."""

BOUNDS = (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Lower bounds on the claimed probability, per bucket but the final one. High probabilities have
narrow buckets, because errors multiply in path probabilities."""

FEW, USUAL = 8.0, 0.2
"""FEW: hits, and expected hits, that each text begins with. USUAL: largest logarithm of their ratio, either way, at
which a text counts as usual. Chosen on SmolLM2's texts (experiments/LOG.md), of which one in two hundred ran in circles
though its drafts were expected to be accepted."""

NUM_BUCKETS = len(BOUNDS) + 1


def _bucket(claimed: float) -> int:
    return next((number for number, least in enumerate(BOUNDS) if claimed >= least), len(BOUNDS))


BUCKETS = bytes(map(_bucket, probabilities.PROBABILITIES))
"""Bucket of each probability code."""

CLAIMED = tuple(
    sum(each) / len(each)
    for each in (
        [one for one, bucket in zip(probabilities.PROBABILITIES, BUCKETS, strict=True) if bucket == number]
        for number in range(NUM_BUCKETS)
    )
)
"""Mean probability claimed by the codes of each bucket."""


@dataclass(slots=True)
class Calibration:
    """Hits and tries of one client's tokens from one source, by bucket of the claimed probability."""

    hits: list[float] = field(default_factory=lambda: [0.0] * NUM_BUCKETS)
    tries: list[float] = field(default_factory=lambda: [0.0] * NUM_BUCKETS)
    _probabilities: list[float] = field(default_factory=list)  # by bucket, falling, when last computed
    _is_outdated: bool = True  # they lack what was observed since

    def probabilities(self, codes: bytes) -> list[float]:
        """Returns each token's probability of acceptance given its predecessors, from the claimed codes."""
        if self._is_outdated:
            self._probabilities, self._is_outdated = self._solve(), False
        return self.latest(codes)

    def latest(self, codes: bytes) -> list[float]:
        """Returns them as last computed, without what was observed since; before that, what is claimed."""
        known = self._probabilities or CLAIMED
        return [known[bucket] for bucket in codes.translate(BUCKETS)]

    @property
    def by_code(self) -> tuple[float, ...]:
        """Probability of acceptance by code of the claimed probability."""
        return tuple(self.probabilities(bytes(range(len(BUCKETS)))))

    def observe(self, codes: bytes, num_accepted: int) -> None:
        """Counts a verified draft: its first num_accepted tokens were accepted, the next rejected, the rest unknown."""
        for place, code in enumerate(codes[: num_accepted + 1]):
            bucket = BUCKETS[code]
            keep = 1.0 - 1.0 / MEMORY
            self.tries[bucket] = keep * self.tries[bucket] + 1.0
            self.hits[bucket] = keep * self.hits[bucket] + (place < num_accepted)
        self._is_outdated = True

    @property
    def _came_true(self) -> float:
        """Share of the claimed hits that there were, at most 1. Else each bucket would unlearn its claims alone."""
        claimed: float = sum(map(mul, self.tries, CLAIMED))
        return min(1.0, (PRIOR_TRIES + sum(self.hits)) / (PRIOR_TRIES + claimed))

    def _solve(self) -> list[float]:
        """Shrinks each bucket towards its claim, then pools neighbours until higher claims have no lower values."""
        # Sum of weighted probabilities, weight, number of buckets; probabilities fall.
        pools: list[tuple[float, float, int]] = []
        prior = PRIOR_TRIES * self._came_true
        for hits, tries, claimed in zip(self.hits, self.tries, CLAIMED, strict=True):
            weight, number = tries + UNSEEN, 1
            total = weight * (hits + prior * claimed) / (tries + prior)
            while pools and pools[-1][0] * weight < total * pools[-1][1]:
                above = pools.pop()
                total, weight, number = total + above[0], weight + above[1], number + above[2]
            pools.append((total, weight, number))
        solved: list[float] = []
        for total, weight, number in pools:
            solved += [min(1.0, total / weight)] * number
        return solved


@dataclass(slots=True)
class TextBias:
    """How a text's tokens of one source do beside what its client's calibration expects."""

    hits: float = 0.0
    expected: float = 0.0

    def observe(self, expected: Sequence[float], num_accepted: int) -> None:
        """Counts a verified draft as `Calibration.observe` does. expected: calibrated probabilities of its tokens."""
        known = expected[: num_accepted + 1]
        keep = (1.0 - 1.0 / MEMORY) ** len(known)
        self.expected = keep * self.expected + sum(known)
        self.hits = keep * self.hits + min(num_accepted, len(known))

    def corrected(self, calibrated: Floats) -> Floats:
        """Returns calibrated probabilities, corrected if the text is unusual."""
        ratio = log((FEW + self.hits) / (FEW + self.expected))
        if abs(ratio) <= USUAL:
            return calibrated
        factor = exp(ratio - copysign(USUAL, ratio))
        return type(calibrated)([min(1.0, factor * one) for one in calibrated])
