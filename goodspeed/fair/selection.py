"""Selects the drafted tokens worth verifying, among all drafted tokens present when a round is packed.

Verifying a node yields its client `worth` times its path probability in tokens, and costs the time that the node adds
to the round. Chains and trees share one function. Its arguments express the rules of three papers: `worth` is fairness
(GoodSpeed, Eq. 5), `round_s` weighs a round's time against its tokens (AdaSpec, Eq. 6), and `need` is a client's
requirement that comes first (AdaServe, Algorithm 1).

A node is a drafted token; its path probability is the product of the probabilities from the base to the node. No node
is likelier than its parent, so the n likeliest nodes of a candidate include their parents, for any n.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import nlargest
from itertools import accumulate
from math import inf
from operator import mul
from typing import NamedTuple

from goodspeed.errors import ConfigError
from goodspeed.exact.trees import BASE

SLACK = 1e-12
"""Tolerance for comparing a need with a sum of rounded products."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One client's draft: a chain, or a tree.

    odds: each node's probability of acceptance given that its parent is accepted; within 0 and 1.
    parents: each node's parent index, or -1 for the base; None: a chain.
    worth: of one token, relative to other candidates.
    need: expected accepted tokens that have priority over other candidates' nodes, as a sum of path probability.
    max_nodes: most nodes that may be chosen; None: no bound but the budget.
    """

    odds: Sequence[float]
    parents: Sequence[int] | None = None
    worth: float = 1.0
    need: float = 0.0
    max_nodes: int | None = None


class Ranked(NamedTuple):
    """A tree's nodes, the likeliest first (ties: parents first), and their path probability in that order."""

    nodes: list[int]
    path_probability: list[float]


def rank(probabilities: Sequence[float], parents: Sequence[int]) -> Ranked:
    """Ranks a tree's nodes, which may come before their parents. Raises ConfigError if the parents form no tree."""
    if len(parents) != len(probabilities):
        raise ConfigError(f"a tree of {len(probabilities)} nodes has {len(parents)} parents; each node has one")
    falling: list[float] = []  # path probability
    for node, parent in enumerate(parents):
        if not BASE <= parent < node:
            return _rank_disordered(probabilities, parents)
        falling.append(probabilities[node] if parent == BASE else falling[parent] * probabilities[node])
    nodes = sorted(range(len(falling)), key=falling.__getitem__, reverse=True)  # stable, so parents come first in ties
    return Ranked(nodes, [falling[node] for node in nodes])


def _rank_disordered(probabilities: Sequence[float], parents: Sequence[int]) -> Ranked:
    """Ranks nodes that may come before their parents."""
    known = {BASE: (1.0, 0)}  # path probability and depth
    try:
        order = [*TopologicalSorter({node: [parent] for node, parent in enumerate(parents)}).static_order()]
    except CycleError:
        order = []
    if not order or min(parents) < BASE or max(parents) >= len(parents):
        raise ConfigError(f"the parents {list(parents)} are not a tree: each must be an index, or -1 for the base")
    for node in order:
        if node != BASE:
            above, depth = known[parents[node]]
            known[node] = above * probabilities[node], depth + 1
    nodes = sorted(range(len(probabilities)), key=lambda node: (-known[node][0], known[node][1]))
    return Ranked(nodes, [known[node][0] for node in nodes])


def path_probability(candidate: Candidate, tree: Ranked | None = None) -> list[float]:
    """Returns the path probabilities of the likeliest `max_nodes` nodes, in descending order.

    tree: the ranked nodes of a candidate that is a tree; None: it is a chain.
    """
    found = tree.path_probability if tree is not None else list(accumulate(candidate.odds, mul))
    return found if candidate.max_nodes is None else found[: max(0, candidate.max_nodes)]


class Selection(NamedTuple):
    """nodes[k]: chosen node indexes of candidate k, ascending; feasible: True if every candidate's need is met."""

    nodes: list[list[int]]
    feasible: bool


def select(
    candidates: Sequence[Candidate],
    budget: int,
    *,
    round_s: Callable[[int], float] | None = None,
    price: float | None = None,
    max_round_s: float = inf,
    others: float = 0.0,
) -> Selection:
    """Chooses at most `budget` nodes, each with its parent, that yield the most for their cost.

    Needs come first, the largest first. Then nodes follow in the order of worth x path probability:

    - with neither round_s nor price, as many as the budget allows;
    - with price, while worth x path probability >= price x (round_s(n + 1) - round_s(n)), n nodes being chosen already;
    - with round_s alone, as many as maximise (others + the sum of worth x (1 + path probability)) over round_s(n).

    others: worth of the round's sessions without a draft, each of which gets one token in the round. round_s: seconds
    of a round by its number of nodes. max_round_s: bound on these seconds. Raises ConfigError for a negative budget, a
    price without round_s, or a candidate whose parents form no tree.
    """
    if budget < 0:
        raise ConfigError(f"the budget is {budget}; it must be 0 or more")
    if price is not None and round_s is None:
        raise ConfigError("a price is per second; it needs round_s")
    most = _most_nodes(budget, round_s, max_round_s)
    trees = {k: rank(one.odds, one.parents) for k, one in enumerate(candidates) if one.parents is not None}
    always = others + sum(one.worth for one in candidates)
    first, feasible = take_needed(candidates, most, always, trees)
    counts, _ = take(candidates, first, most, Cost(round_s, price), trees)
    nodes = [list(range(count)) for count in counts]
    for k, tree in trees.items():
        nodes[k] = sorted(tree.nodes[: counts[k]])
    return Selection(nodes, feasible)


def _most_nodes(budget: int, round_s: Callable[[int], float] | None, max_round_s: float) -> int:
    """Returns the most nodes within the budget whose round is not too long; round_s must not decrease."""
    if round_s is None or max_round_s == inf or round_s(budget) <= max_round_s:
        return budget
    return bisect_right(range(1, budget + 1), max_round_s, key=round_s)


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

    trees: the ranked nodes of each candidate that is a tree, by the candidate's index. Raises ConfigError for
    probabilities outside 0 to 1.
    """
    num_first = sum(first.counts)
    order: list[tuple[float, int, int]] = []  # the most valuable first; ties: each candidate's next node before others
    for k, one in enumerate(candidates):
        if not all(0.0 <= probability <= 1.0 for probability in one.odds):
            raise ConfigError("probabilities must lie within 0 and 1")
        low, likely = first.counts[k], path_probability(one, (trees or {}).get(k))
        order += [(-one.worth * probability, place, k) for place, probability in enumerate(likely[low:], low)]
    order.sort()
    del order[max(0, most - num_first) :]
    falling = [-negative for negative, _, _ in order]
    sums = list(accumulate(falling, initial=first.value))
    number = _num_worth(falling, sums, num_first, cost)
    counts = list(first.counts)
    for _, _, k in order[:number]:
        counts[k] += 1
    return Taken(counts, sums[number])


def best_sums(candidates: Sequence[Candidate], most: int, trees: Mapping[int, Ranked]) -> list[float]:
    """Returns most + 1 sums: the highest worth of 0, 1, ..., `most` nodes. trees: as for `take`."""
    values = [one.worth * likely for k, one in enumerate(candidates) for likely in path_probability(one, trees.get(k))]
    sums = list(accumulate(nlargest(most, values), initial=0.0))
    return sums + sums[-1:] * (most + 1 - len(sums))


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


def net_worth(alone: float, value: float, part: float) -> float:
    """Returns the net gain per accepted drafted token, in tokens of plain decoding; within 0 and 1.

    The time that drafts add to the round is charged at the round's own worth per second. alone, value: worth of a round
    without and with its drafted tokens. part: time of the round without them, as a share of its time with them.
    """
    return min(1.0, max(0.0, alone / value - (1.0 - part) * alone / (value - alone)))


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
