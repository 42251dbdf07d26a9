"""Takes nodes in the order of worth x path probability, as many as are worth the round's time.

There are two implementations. After a forward pass the processor's caches are cold: numpy's calls then take at least
0.3 ms, and plain Python takes 0.1 ms for eight chains. For a thousand chains numpy takes 0.7 ms, and plain Python 3 ms.
`take_needed` runs first: it takes the nodes that candidates need, whatever their worth.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from goodspeed.errors import ConfigError
from goodspeed.fair.candidates import OUTSIDE, Candidate, Ranked, path_probability

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

SLACK = 1e-12
"""Tolerance for comparing a need with a sum of rounded products."""

FEW = 256
"""Nodes up to which plain Python is used: right after a forward pass it is faster up to 500, otherwise up to 100."""


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
    way = _take_few if sum(len(one.odds) for one in candidates) <= FEW else _take_many
    return way(candidates, first, most, cost, trees or {})


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


def _take_few(
    candidates: Sequence[Candidate], first: Taken, most: int, cost: Cost, trees: Mapping[int, Ranked]
) -> Taken:
    if not all(0.0 <= probability <= 1.0 for one in candidates for probability in one.odds):
        raise ConfigError(OUTSIDE)
    num_first = sum(first.counts)
    order = sorted(
        (-one.worth * probability, rank, k)  # ties: each candidate's next node before any second one
        for k, one in enumerate(candidates)
        for rank, probability in enumerate(path_probability(one, trees.get(k)))
        if rank >= first.counts[k]
    )[: most - num_first]
    falling = [-negative for negative, _, _ in order]
    sums = list(accumulate(falling, initial=first.value))
    number = _num_worth_few(falling, sums, num_first, cost)
    counts = list(first.counts)
    for _, _, k in order[:number]:
        counts[k] += 1
    return Taken(counts, sums[number])


def _num_worth_few(falling: Sequence[float], sums: Sequence[float], num_first: int, cost: Cost) -> int:
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


def _take_many(
    candidates: Sequence[Candidate], first: Taken, most: int, cost: Cost, trees: Mapping[int, Ranked]
) -> Taken:
    values = _values(candidates, trees)
    num_first = sum(first.counts)
    if num_first:
        values[np.arange(values.shape[1]) < np.array(first.counts)[:, None]] = np.nan
    num_left = int(np.count_nonzero(~np.isnan(values)))
    falling = -np.sort(-values, axis=None)[: min(most - num_first, num_left)]  # NaN sorts last
    sums = np.cumsum(np.concatenate([[first.value], falling]))
    number = _num_worth_many(falling, sums, num_first, cost)
    if not number:
        return first
    counts = _num_above(values, falling[number - 1], number)
    if num_first:
        counts += first.counts
    return Taken(counts.tolist(), float(sums[number]))


def _values(candidates: Sequence[Candidate], trees: Mapping[int, Ranked]) -> Floats:
    """Worth x path probability of each candidate's nodes, falling, padded with NaN.

    Shape: [num_candidates, most nodes of one].
    """
    sizes = np.array([len(one.odds) for one in candidates], np.int64)
    flat: Floats = np.fromiter(chain.from_iterable(one.odds for one in candidates), np.float64, int(sizes.sum()))
    if not np.all((flat >= 0.0) & (flat <= 1.0)):
        raise ConfigError(OUTSIDE)
    values: Floats = np.full((len(candidates), int(sizes.max(initial=0))), np.nan)
    values[np.arange(values.shape[1]) < sizes[:, None]] = flat
    np.cumprod(values, axis=1, out=values)
    for k in [k for k, one in enumerate(candidates) if one.parents is not None or one.max_nodes is not None]:
        own = path_probability(candidates[k], trees.get(k))
        values[k, : len(own)], values[k, len(own) :] = own, np.nan
    values *= np.array([one.worth for one in candidates])[:, None]
    return values


def _num_worth_many(falling: Floats, sums: Floats, num_first: int, cost: Cost) -> int:
    """As `_num_worth_few`."""
    round_s, price = cost
    if round_s is None:
        return len(falling)
    seconds = np.fromiter(map(round_s, range(num_first, num_first + len(sums))), np.float64, len(sums))
    if price is None:
        return int(np.argmax(sums / seconds))
    too_dear = np.flatnonzero(falling < price * np.diff(seconds))
    return int(too_dear[0]) if len(too_dear) else len(falling)


def _num_above(values: Floats, least: float, number: int) -> Ints:
    """Returns how many of the `number` highest values each candidate has. least: the lowest of these values."""
    counts: Ints = np.count_nonzero(values > least, axis=1)
    _, equal = np.nonzero((values == least).T)  # ties: each candidate's next node before any second one
    return counts + np.bincount(equal[: number - int(counts.sum())], minlength=len(values))
