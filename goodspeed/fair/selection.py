"""Which of the drafted tokens are worth verifying: `select` chooses among all that are there when a round is packed.

A drafted token is a node; its path odds are the product of the odds from the base to it. Verifying a node brings its
client `worth` times its path odds in tokens, and costs what it adds to the round's time. The same function serves
chains and trees. The rules of three papers are its arguments: fairness (GoodSpeed, Eq. 5) is `worth`, a round's time
against its tokens (AdaSpec, Eq. 6) is `round_s`, and a client's requirement that comes first (AdaServe, Algorithm 1)
is `need`. Knows nothing about who drafted the tokens, or what they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from goodspeed.errors import ConfigError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

BASE = -1
"""The parent of a first node: the newest token that is decided."""

SLACK = 1e-12
"""A need that is met but for this is met: it is a sum of rounded products."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one client has drafted: a chain, or a tree.

    odds: of each node, that it is accepted given that its parent is; within 0 and 1.
    parents: of each node, the index of its parent, or -1 for the base; None for a chain.
    worth: of one token, as compared with others'.
    need: tokens that its drafts must bring before others' are chosen, as a sum of path odds.
    max_nodes: the most that may be chosen; None for no bound but the budget.
    """

    odds: Sequence[float]
    parents: Sequence[int] | None = None
    worth: float = 1.0
    need: float = 0.0
    max_nodes: int | None = None


class Selection(NamedTuple):
    """nodes[k]: the chosen indexes of candidate k, ascending; feasible: whether every candidate's need is met."""

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
    """Chooses at most `budget` nodes, each with its parent, so that they bring the most for what they cost.

    Needs come first, the largest first. Then nodes follow in the order of worth x path odds:

    - with neither round_s nor price, as many as the budget allows;
    - with price, while worth x path odds >= price x (round_s(n + 1) - round_s(n)), n nodes being chosen already;
    - with round_s alone, as many as maximise (others + the sum of worth x (1 + path odds)) over round_s(n).

    others: worth of those in the round who have drafted nothing; the round brings each of them one token. round_s:
    seconds of a round that verifies so many nodes. No more are chosen than keep it within max_round_s.
    Raises ConfigError for a negative budget, a price without round_s, or a candidate that is no tree.
    """
    if budget < 0:
        raise ConfigError(f"the budget is {budget}; it must be 0 or more")
    if price is not None and round_s is None:
        raise ConfigError("a price is per second; it needs round_s")
    most = _most_nodes(budget, round_s, max_round_s)
    order = _Order(candidates)
    first, feasible = order.needed(most)
    rest = order.rest(first, most - len(first))
    if round_s is not None:
        values = order.values[rest]
        if price is not None:
            rest = rest[: _num_worth_it(values, len(first), round_s, price)]
        else:
            always = others + sum(candidate.worth for candidate in candidates) + float(order.values[first].sum())
            rest = rest[: _best_prefix(values, len(first), round_s, always)]
    return Selection(order.per_candidate(np.concatenate([first, rest])), feasible)


def _most_nodes(budget: int, round_s: Callable[[int], float] | None, max_round_s: float) -> int:
    """The largest number of nodes within the budget whose round is not too long; round_s does not decrease."""
    if round_s is None or max_round_s == inf or round_s(budget) <= max_round_s:
        return budget
    low, high = 0, budget  # round_s(high) is too long
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if round_s(middle) <= max_round_s else (low, middle)
    return low


def _num_worth_it(values: Floats, num_first: int, round_s: Callable[[int], float], price: float) -> int:
    before = round_s(num_first)
    for number, value in enumerate(values.tolist()):
        after = round_s(num_first + number + 1)
        if value < price * (after - before):
            return number
        before = after
    return len(values)


def _best_prefix(values: Floats, num_first: int, round_s: Callable[[int], float], always: float) -> int:
    best, length, sum_of = always / round_s(num_first), 0, always
    for number, value in enumerate(values.tolist(), 1):
        sum_of += value
        if (rate := sum_of / round_s(num_first + number)) > best:
            best, length = rate, number
    return length


class _Order:
    """All nodes of all candidates as flat arrays, those of each candidate together, in the order of their indexes."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        sizes = np.fromiter((len(one.odds) for one in candidates), np.int64, len(candidates))
        self._candidates = candidates
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._owner = np.repeat(np.arange(len(candidates)), sizes)  # [num_nodes]
        self._paths = _chain_odds(candidates, sizes)
        depths = np.arange(len(self._owner)) - self._starts[self._owner]
        for k, one in enumerate(candidates):
            if one.parents is not None:
                here = slice(self._starts[k], self._starts[k + 1])
                self._paths[here], depths[here] = _tree_odds(one.odds, one.parents)
        worth = np.fromiter((one.worth for one in candidates), np.float64, len(candidates))
        self.values = worth[self._owner] * self._paths
        in_order = np.lexsort((depths, -self.values))  # of equals the parent first
        by_candidate = in_order[np.argsort(self._owner[in_order], kind="stable")]
        self._grouped = by_candidate  # each candidate's own, in the same order
        self._sorted = in_order[self._is_allowed(by_candidate)[in_order]]

    def _is_allowed(self, by_candidate: Ints) -> NDArray[np.bool_]:
        """Allows each candidate its best max_nodes nodes; ancestors bring no less than they do, so they stay too."""
        bounds = (len(one.odds) if one.max_nodes is None else max(0, one.max_nodes) for one in self._candidates)
        self._bounds = np.fromiter(bounds, np.int64, len(self._candidates))
        ranks = np.empty(len(by_candidate), np.int64)
        ranks[by_candidate] = np.arange(len(by_candidate)) - self._starts[self._owner]
        allowed: NDArray[np.bool_] = ranks < self._bounds[self._owner]
        return allowed

    def _of(self, k: int) -> Ints:
        """The candidate's allowed nodes in their order."""
        begin, end = self._starts[k], self._starts[k + 1]
        return self._grouped[begin : min(end, begin + self._bounds[k])]

    def needed(self, most: int) -> tuple[Ints, bool]:
        """The nodes that meet the candidates' needs, the largest need first, and whether all needs are met."""
        chosen: list[int] = []
        feasible = True
        needs = [k for k, one in enumerate(self._candidates) if one.need > 0]
        for k in sorted(needs, key=lambda k: -self._candidates[k].need):
            missing = self._candidates[k].need
            for node in self._of(k)[: most - len(chosen)].tolist():
                if missing <= SLACK:
                    break
                chosen.append(node)
                missing -= float(self._paths[node])
            feasible = feasible and missing <= SLACK
        return np.array(chosen, np.int64), feasible

    def rest(self, first: Ints, number: int) -> Ints:
        """The next nodes after those that are chosen first."""
        rest = self._sorted[~np.isin(self._sorted, first)] if len(first) else self._sorted
        return rest[:number]

    def per_candidate(self, nodes: Ints) -> list[list[int]]:
        """Flat indexes as each candidate's own, ascending."""
        nodes = np.sort(nodes)
        own = (nodes - self._starts[self._owner[nodes]]).tolist()
        ends = np.searchsorted(nodes, self._starts).tolist()
        return [own[begin:end] for begin, end in pairwise(ends)]


def _chain_odds(candidates: Sequence[Candidate], sizes: Ints) -> Floats:
    """Path odds of all nodes, as if every candidate were a chain.

    Raises ConfigError for odds that are not within 0 and 1.
    """
    flat: Floats = np.fromiter(chain.from_iterable(one.odds for one in candidates), np.float64, int(sizes.sum()))
    if not np.all((flat >= 0.0) & (flat <= 1.0)):
        raise ConfigError("odds must lie within 0 and 1")
    padded: Floats = np.ones((len(candidates), int(sizes.max(initial=0))))  # [num_candidates, longest]
    inside = np.arange(padded.shape[1]) < sizes[:, None]
    padded[inside] = flat
    np.cumprod(padded, axis=1, out=padded)
    return padded[inside]


def _tree_odds(odds: Sequence[float], parents: Sequence[int]) -> tuple[Floats, Ints]:
    """Path odds and depths of a tree's nodes, whatever their order."""
    if len(parents) != len(odds):
        raise ConfigError(f"a tree of {len(odds)} nodes has {len(parents)} parents; each node has one")
    paths, depths = np.full(len(odds), np.nan), np.zeros(len(odds), np.int64)
    for node in range(len(odds)):
        for one in reversed(_unknown_ancestors(node, parents, paths)):
            above = parents[one]
            paths[one] = odds[one] * (1.0 if above == BASE else paths[above])
            depths[one] = 0 if above == BASE else depths[above] + 1
    return paths, depths


def _unknown_ancestors(node: int, parents: Sequence[int], paths: Floats) -> list[int]:
    """The node and those above it whose path odds are not known yet, the lowest first."""
    found: list[int] = []
    while node != BASE and np.isnan(paths[node]):
        if not BASE <= parents[node] < len(parents) or len(found) == len(parents):
            raise ConfigError(f"the parents {list(parents)} are no tree: each is an index, or -1 for the base")
        found.append(node)
        node = parents[node]
    return found
