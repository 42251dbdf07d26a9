"""Selects the drafted tokens worth verifying, among all drafted tokens present when a round is packed.

Verifying a node yields its client `worth` times its path probability in tokens, and costs the time that the node adds
to the round. Chains and trees share one function. Its arguments express the rules of three papers: `worth` is fairness
(GoodSpeed, Eq. 5), `round_s` weighs a round's time against its tokens (AdaSpec, Eq. 6), and `need` is a client's
requirement that comes first (AdaServe, Algorithm 1).
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from goodspeed.errors import ConfigError
from goodspeed.fair.by_value import Cost, take, take_needed
from goodspeed.fair.candidates import Candidate, rank
from goodspeed.fair.round_time import largest


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
    return largest(lambda number: round_s(number) <= max_round_s, 0, budget)
