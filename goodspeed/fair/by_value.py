"""Takes nodes in the order of worth x path probability, as many as are worth the round's time.

`take_needed` runs first: it takes the nodes that candidates need, whatever their worth.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from itertools import accumulate
from typing import NamedTuple

from goodspeed.errors import ConfigError
from goodspeed.fair.candidates import OUTSIDE, Candidate, Ranked, path_probability

SLACK = 1e-12
"""Tolerance for comparing a need with a sum of rounded products."""


class Taken(NamedTuple):
    """counts[k]: number of nodes taken of candidate k, its likeliest; value: total expected worth of the round."""

    counts: list[int]
    value: float


class Cost(NamedTuple):
    """Cost of nodes: seconds of a round by its number of nodes, and the price of a second, both as in `select`."""

    round_s: Callable[[int], float] | None = None
    price: float | None = None


def take(
    candidates: Sequence[Candidate], first: Taken, most: int, cost: Cost, trees: Mapping[int, Ranked] | None = None
) -> Taken:
    """Takes nodes after the first ones, up to `most` in all, while they are worth it; see `select`.

    trees: ranks of the candidates that are trees, by index. Raises ConfigError for probabilities outside 0 to 1.
    """
    if not all(0.0 <= probability <= 1.0 for one in candidates for probability in one.odds):
        raise ConfigError(OUTSIDE)
    num_first = sum(first.counts)
    order = nsmallest(
        most - num_first,
        (  # ties: each candidate's next node before any second one
            (-one.worth * probability, rank, k)
            for k, one in enumerate(candidates)
            for rank, probability in enumerate(path_probability(one, (trees or {}).get(k)))
            if rank >= first.counts[k]
        ),
    )
    falling = [-negative for negative, _, _ in order]
    sums = list(accumulate(falling, initial=first.value))
    number = _num_worth(falling, sums, num_first, cost)
    counts = list(first.counts)
    for _, _, k in order[:number]:
        counts[k] += 1
    return Taken(counts, sums[number])


def take_needed(
    candidates: Sequence[Candidate], most: int, always: float, trees: Mapping[int, Ranked] | None = None
) -> tuple[Taken, bool]:
    """Takes nodes that meet the candidates' needs, the largest need first; also returns whether all needs are met.

    most: nodes in all. always: worth of the round without drafted tokens.
    """
    counts, value, feasible = [0] * len(candidates), always, True
    needs = [k for k, one in enumerate(candidates) if one.need > 0]
    for k in sorted(needs, key=lambda k: -candidates[k].need):
        missing = candidates[k].need
        for probability in path_probability(candidates[k], (trees or {}).get(k))[: most - sum(counts)]:
            if missing <= SLACK:
                break
            counts[k] += 1
            missing -= probability
            value += candidates[k].worth * probability
        feasible = feasible and missing <= SLACK
    return Taken(counts, value), feasible


def _num_worth(falling: Sequence[float], sums: Sequence[float], num_first: int, cost: Cost) -> int:
    """Returns how many values are worth their cost. sums: the round's worth with 0, 1, 2, ... of the values."""
    round_s, price = cost
    if round_s is None:
        return len(falling)
    seconds = [round_s(number) for number in range(num_first, num_first + len(sums))]
    if price is None:
        rates = [brings / takes for brings, takes in zip(sums, seconds, strict=True)]
        return rates.index(max(rates))
    too_dear = (n for n, value in enumerate(falling) if value < price * (seconds[n + 1] - seconds[n]))
    return next(too_dear, len(falling))
