"""Selection chooses the drafted tokens to verify: cases by hand, then against a search of all choices."""

from collections.abc import Callable
from itertools import product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.errors import ConfigError
from goodspeed.fair.selection import Candidate, net_worth, select


def path_probability(candidate: Candidate) -> list[float]:
    found: list[float] = []
    for node, probability in enumerate(candidate.odds):
        parent = node - 1 if candidate.parents is None else candidate.parents[node]
        found.append(probability * (found[parent] if parent >= 0 else 1.0))
    return found


def choices(candidate: Candidate) -> list[tuple[int, ...]]:
    """All sets of nodes that hold every chosen node's parent."""
    found = []
    for marks in product([False, True], repeat=len(candidate.odds)):
        chosen = [node for node, mark in enumerate(marks) if mark]
        parents = [node - 1 if candidate.parents is None else candidate.parents[node] for node in chosen]
        within = candidate.max_nodes is None or len(chosen) <= candidate.max_nodes
        if within and all(parent < 0 or marks[parent] for parent in parents):
            found.append(tuple(chosen))
    return found


def value(candidates: list[Candidate], chosen: list[list[int]]) -> float:
    pairs = zip(candidates, chosen, strict=True)
    return sum(one.worth * sum(path_probability(one)[node] for node in nodes) for one, nodes in pairs)


def num_nodes(chosen: list[list[int]]) -> int:
    return sum(map(len, chosen))


def all_choices(candidates: list[Candidate], budget: int) -> list[list[list[int]]]:
    every = product(*(choices(one) for one in candidates))
    return [[list(nodes) for nodes in one] for one in every if sum(map(len, one)) <= budget]


def linear(fixed: float, each: float) -> Callable[[int], float]:
    return lambda number: fixed + each * number


PAIR = [Candidate([0.9, 0.8, 0.5]), Candidate([0.6, 0.3, 0.2])]


@pytest.mark.parametrize(
    ("budget", "nodes"),
    [(0, [[], []]), (1, [[0], []]), (3, [[0, 1], [0]]), (4, [[0, 1, 2], [0]]), (9, [[0, 1, 2], [0, 1, 2]])],
)
def test_the_likeliest_tokens_go_first(budget, nodes):
    assert select(PAIR, budget) == (nodes, True)


def test_worth_weighs_probabilities_and_of_equals_each_candidates_first_goes_before_any_second():
    assert select([Candidate([0.9]), Candidate([0.6], worth=2.0)], 1).nodes == [[], [0]]
    assert select([Candidate([1.0] * 3)] * 3, 4).nodes == [[0, 1], [0], [0]]


def test_a_clients_need_comes_first_and_the_largest_need_before_others():
    needy = Candidate([0.2, 0.5], need=0.3)
    assert select([Candidate([0.9, 0.9]), needy], 2) == ([[], [0, 1]], True)
    larger = Candidate([0.5], need=0.4)
    assert select([needy, larger], 2) == ([[0], [0]], False)
    assert select([needy], 5, max_round_s=inf).feasible
    assert not select([Candidate([0.2], need=0.3)], 5).feasible


def test_the_worked_example_of_adaspec():
    """Two steps gave r1 .9 .8 and r2 .6 .3. The token with path probability .18 costs more than it brings."""
    drafted = [Candidate([0.9, 0.8]), Candidate([0.6, 0.3])]
    chosen = select(drafted, 99, round_s=linear(2 + 10 + 2, 1.0))
    assert chosen == ([[0, 1], [0]], True)
    assert (2 + value(drafted, chosen.nodes)) / 17 == pytest.approx(0.2482, abs=1e-4)


def test_who_has_drafted_nothing_waits_for_longer_rounds_too():
    """1.6 / 1.3 s > 1 / 1 s for it alone, and 10.6 / 1.3 s < 10 / 1 s with nine others."""
    alone, round_s = [Candidate([0.6])], linear(1.0, 0.3)
    assert select(alone, 1, round_s=round_s).nodes == [[0]]
    assert select(alone, 1, round_s=round_s, others=9.0).nodes == [[]]


def test_a_price_ends_the_choice_where_a_token_costs_more_than_it_brings():
    assert select(PAIR, 9, round_s=linear(1.0, 0.1), price=5.0).nodes == [[0, 1], [0]]
    assert select(PAIR, 9, round_s=linear(1.0, 0.0), price=5.0).nodes == [[0, 1, 2], [0, 1, 2]]
    just_enough = [Candidate([0.5, 0.9])]
    assert select(just_enough, 9, round_s=linear(1.0, 1.0), price=0.5).nodes == [[0]]


def test_no_round_is_longer_than_it_may_be():
    assert num_nodes(select(PAIR, 9, round_s=linear(1.0, 0.1), max_round_s=1.35).nodes) == 3
    assert select([Candidate([0.9], need=0.5)], 9, round_s=linear(1.0, 0.1), max_round_s=1.05) == ([[]], False)


def test_siblings_and_any_order_of_nodes():
    tree = Candidate([0.5, 0.9, 0.4], parents=[1, -1, -1])  # 0 is a child of 1
    assert select([tree], 2).nodes == [[0, 1]]
    assert select([Candidate([1.0, 1.0, 1.0], parents=[2, 0, -1])], 1).nodes == [[2]]


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (Candidate([0.5, 1.1]), "within 0 and 1"), (Candidate([float("nan")]), "within 0 and 1"),
        (Candidate([0.5, 0.5], parents=[1, 0]), "not a tree"), (Candidate([0.5], parents=[3]), "not a tree"),
        (Candidate([0.5] * 3, parents=[-1, -3, -1]), "not a tree"), (Candidate([0.5], [-1, 0]), "each node has one"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(candidate, message):
    with pytest.raises(ConfigError, match=message):
        select([candidate], 3)


def test_nobody_may_be_there_and_a_negative_budget_and_a_price_without_time_are_refused():
    assert select([], 5, round_s=linear(1.0, 1.0)) == ([], True)
    assert select([Candidate([])], 5) == ([[]], True)
    with pytest.raises(ConfigError, match="0 or more"):
        select([], -1)
    with pytest.raises(ConfigError, match="round_s"):
        select([], 1, price=1.0)


probabilities = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.8, 1.0]) | st.floats(0, 1)


@st.composite
def candidates(draw: st.DrawFn, most: int = 7, needs: bool = False) -> Candidate:
    values = draw(st.lists(probabilities, max_size=most))
    parents = None
    if draw(st.booleans()):
        parents = [draw(st.integers(-1, node - 1)) for node in range(len(values))]
    need = draw(st.sampled_from([0.0, 0.3, 1.2])) if needs else 0.0
    bound = draw(st.none() | st.integers(0, most))
    return Candidate(values, parents, draw(st.sampled_from([0.5, 1.0, 3.0])), need, bound)


few = st.lists(candidates(most=4), max_size=3)


@given(few, st.integers(0, 8))
def test_no_other_choice_within_the_budget_brings_more(given_, budget):
    chosen = select(given_, budget).nodes
    assert num_nodes(chosen) <= budget
    assert all(tuple(nodes) in choices(one) for nodes, one in zip(chosen, given_, strict=True))
    assert value(given_, chosen) >= max(value(given_, other) for other in all_choices(given_, budget)) - 1e-9


@given(few, st.integers(0, 8), st.floats(0.0, 2.0), st.floats(0.01, 1.0))
def test_no_other_choice_brings_more_beyond_its_price(given_, budget, price, each):
    round_s = linear(1.0, each)

    def gain(nodes: list[list[int]]) -> float:
        return float(value(given_, nodes) - price * round_s(num_nodes(nodes)))

    best = max(gain(other) for other in all_choices(given_, budget))
    assert gain(select(given_, budget, round_s=round_s, price=price).nodes) >= best - 1e-9


@given(few, st.integers(0, 8), st.floats(0.01, 1.0))
def test_no_other_choice_brings_more_per_second(given_, budget, each):
    round_s = linear(1.0, each)

    def rate(nodes: list[list[int]]) -> float:
        return float((sum(one.worth for one in given_) + value(given_, nodes)) / round_s(num_nodes(nodes)))

    best = max((rate(other) for other in all_choices(given_, budget)), default=0.0)
    assert rate(select(given_, budget, round_s=round_s).nodes) >= best - 1e-9


@given(candidates(needs=True), st.integers(0, 9))
def test_a_need_is_met_exactly_where_some_choice_meets_it(candidate, budget):
    paths = path_probability(candidate)
    sums = [sum(paths[node] for node in nodes) for nodes in choices(candidate) if len(nodes) <= budget]
    assert select([candidate], budget).feasible == (max(sums) >= candidate.need - 1e-9)


# AdaServe's Fig. 5: path probabilities .7 .2 .42 .21 .294 .126 and .5 .4 .35 .24 .14 .14; six nodes beside two roots
FIG_5 = (((0.7, 0.2, 0.6, 0.3, 0.7, 0.3), (-1, -1, 0, 0, 2, 2)), ((0.5, 0.4, 0.7, 0.6, 0.4, 0.4), (-1, -1, 0, 1, 2, 2)))


@pytest.mark.parametrize(
    ("need", "nodes", "total"),
    [(0.8, [[0, 2, 4], [0, 1, 2]], 4.664), (1.3, [[0, 2], [0, 1, 2, 3]], 4.61), (1.5, [[0], [0, 1, 2, 3, 4]], 4.33)],
)
def test_the_worked_example_of_adaserve(need: float, nodes: list[list[int]], total: float) -> None:
    """Needs are beside the token that each round brings, as in the figure; the total counts both roots."""
    candidates = [Candidate(*FIG_5[0], need=0.6), Candidate(*FIG_5[1], need=need)]
    found = select(candidates, 6)
    assert found.feasible
    assert [sorted(chosen) for chosen in found.nodes] == nodes
    assert 2 + value(candidates, [list(chosen) for chosen in found.nodes]) == pytest.approx(total)
    assert not select([Candidate(odds, parents, need=1.5) for odds, parents in FIG_5], 6).feasible


@pytest.mark.parametrize(
    ("value", "part", "net"),
    [
        (16.0, 1.0, 0.5),  # drafts take no time, and a round brings twice as much: its time is twice as dear
        (16.0, 0.5, 0.0),  # it also takes twice as long
        (16.0, 0.4, 0.0),  # drafts that bring less than their time
        (9.0, 1.2, 1.0),  # a cost model that is wrong makes no wait worth more than its tokens
        (10.0, 0.9, 0.4),
    ],
)
def test_a_drafted_token_is_worth_what_the_time_of_its_verification_leaves(value: float, part: float, net: float):
    assert net_worth(8.0, value, part) == pytest.approx(net)
