"""Orders: the small cases by hand, then what holds for all of them."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.simulation.rival_orders import bounds, create
from verify_node.scheduler.orders import ORDERS
from verify_node.scheduler.orders.base import AGING_S, Job
from verify_node.scheduler.orders.laps import BOUNDS, NUM_ROUNDS, WINDOW, RateHistory, stable_rate

STABLE = (0.5,) * NUM_ROUNDS
QUEUES: dict[str, Any] = {"bounds": (1.0, 2.0, 4.0)}


def job(number, *, tokens=100.0, since=0.0, at=0.0, **known):
    """A waiter; with since=None it has a place. One token takes 10 ms."""
    known = {"round_s": 0.01} | known
    return Job(job_id=number, arrived_at=at, waits_since=since, remaining_tokens=tokens, **known)


def holder(number, *, turn_s=10.0, **known):
    return job(number, since=None, turn_s=turn_s, **known)


def ids(jobs):
    return [one.job_id for one in jobs]


def test_the_time_that_is_left_is_that_of_equation_6():
    # 30 tokens, 4 drafted at 0.5 and one more a round: 10 rounds of 4 x 1 ms + 6 ms
    one = job(1, tokens=30, num_drafted=4, draft_s=0.001, round_s=0.006)
    assert one.remaining_s(0.5) == pytest.approx(0.1)
    assert Job(job_id=1, arrived_at=0.0).remaining_s(0.5) == 0.0, "an unknown length at no known cost is no number"


# -- queues ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("service_s", "level"), [(0.0, 0), (0.99, 0), (1.0, 1), (3.9, 2), (4.0, 3), (1e9, 3)])
def test_a_job_is_demoted_by_what_it_has_attained(service_s, level):
    order: Any = create("laps", **QUEUES)
    assert order.level(service_s) == level


def test_bounds_of_queues_grow_by_the_same_factor():
    assert bounds(num_queues=4, growth=4.0, first_s=0.5) == BOUNDS == (0.5, 2.0, 8.0)
    assert bounds(num_queues=2, growth=2.0, first_s=0.25) == (0.25,)


@pytest.mark.parametrize("name", ["las", "laps"])
def test_a_higher_queue_goes_first_and_in_it_who_came_first(name):
    jobs = [job(1, attained_s=1.5), job(2, attained_s=0.5, at=2.0), job(3, attained_s=0.9, at=1.0)]
    assert ids(create(name, **QUEUES).rank(jobs, 0.0)) == [3, 2, 1]


def test_in_the_queue_of_what_they_will_have_attained_perceptible_jobs_go_first_and_of_them_the_shortest():
    jobs = [job(1), job(2, at=1, rates=STABLE, tokens=90), job(3, at=2, rates=STABLE, tokens=50)]
    assert ids(create("laps", **QUEUES).rank(jobs, 0.0)) == [3, 2, 1]
    known_to_be_long = job(1, rates=STABLE, tokens=1000)  # 10 s
    assert ids(create("laps", **QUEUES).rank([known_to_be_long, job(2, at=1.0)], 0.0)) == [2, 1]


# -- who yields --------------------------------------------------------------------------------------------------------


LONG = holder(1, attained_s=1.5, tokens=1000)
"""It needs 11.5 s, and has had 1.5 s of them."""


def yields(order, holding, waiting, now=0.0):
    """True if the only place changes hands."""
    order = create(order, **QUEUES) if isinstance(order, str) else order
    order.rank([holding, waiting], now)
    return order.yields(holding, waiting, now)


@pytest.mark.parametrize("options", [{"name": "las"}, {"name": "laps", "guesses": False}], ids=str)
def test_a_job_yields_to_a_strictly_higher_queue_only(options):
    order = partial(create, **QUEUES, **options)
    assert yields(order(), LONG, job(2, tokens=10))
    assert not yields(order(), LONG, job(2, tokens=10, attained_s=1.5))


def test_with_guesses_a_queue_is_of_all_that_a_job_is_expected_to_need():
    assert yields("laps", LONG, job(2, tokens=200, attained_s=1.5))  # 3.5 s
    assert not yields("laps", LONG, job(2, tokens=900, attained_s=1.5))
    jobs = [job(1, tokens=90), job(2, tokens=50, at=1.0)]
    assert ids(create("laps", **QUEUES).rank(jobs, 0.0)) == [2, 1]


def test_nobody_yields_before_a_turn_of_the_first_queue_nor_in_orders_that_take_no_place_away():
    for order in ("las", "laps"):
        assert not yields(order, replace(LONG, turn_s=0.9), job(2, tokens=10))
    for order in ("fcfs", "sjf"):
        assert not yields(create(order), holder(1, attained_s=9.0, tokens=1e6), job(2, tokens=1), 1e6)


@pytest.mark.parametrize(("tokens", "is_yielded"), [(111.0, True), (109.0, False)])
def test_laps_counts_what_coming_back_costs(tokens, is_yielded):
    # 1 s for the waiter and 0.1 s to come back, against `tokens` of 10 ms
    assert yields("laps", holder(1, attained_s=1.5, tokens=tokens, recompute_s=0.1), job(2)) is is_yielded


def test_a_perceptible_job_may_be_displaced_once_and_then_only_when_its_acceptance_has_changed():
    order = create("laps", **QUEUES)
    long, short = replace(LONG, rates=STABLE), job(2, tokens=10)
    order.rank([long], 0.0)  # its one ranking: nobody else was there
    assert not yields(order, long, short)
    assert yields("laps", long, short)
    assert yields(order, replace(long, rates=(*STABLE[1:], 0.9)), short), "it is perceptible no more"


# -- nobody starves ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["sjf", "las", "laps"])
def test_who_waits_too_long_goes_before_all_others(order):
    jobs = [job(1, attained_s=50.0, tokens=1e6), job(2, since=AGING_S, at=AGING_S)]
    assert [ids(create(order).rank(jobs, now)) for now in (AGING_S, AGING_S + 0.1)] == [[2, 1], [1, 2]]


@pytest.mark.parametrize("order", ["las", "laps"])
def test_a_place_is_given_up_for_who_has_waited_too_long_though_its_queue_is_lower(order):
    short, old = holder(1, attained_s=1.5, tokens=10), job(2, attained_s=50.0, tokens=1e6)
    assert not yields(order, short, old, now=AGING_S)
    assert yields(order, short, old, now=AGING_S + 0.1)


def any_job(at, held, attained_s, **known):
    return job(0, at=at, since=None if held else at, attained_s=attained_s, turn_s=attained_s, **known)


RATES = st.sampled_from([(), STABLE, (0.1, 0.9)])
A_JOB = st.builds(any_job, st.floats(0, 100), st.booleans(), st.floats(0, 20), tokens=st.floats(0, 5000), rates=RATES)
JOBS = st.lists(A_JOB, max_size=12).map(lambda jobs: [replace(one, job_id=n) for n, one in enumerate(jobs)])


@given(name=st.sampled_from(ORDERS.names), jobs=JOBS, now=st.floats(0, 200))
def test_a_ranking_has_everybody_once_however_they_are_listed(name, jobs, now):
    ranked = create(name).rank(jobs, now)
    assert sorted(ids(ranked)) == sorted(ids(jobs))
    if len({one.arrived_at for one in jobs}) == len(jobs):
        assert ids(create(name).rank(jobs[::-1], now)) == ids(ranked)


# -- when an acceptance rate is stable --------------------------------------------------------------------------------


def history(*drafts):
    rates = RateHistory()
    for accepted, drafted in drafts:
        rates.observe(accepted, drafted)
    return rates


def test_a_round_without_a_draft_has_no_rate_but_brings_one_token_all_the_same():
    """Else a text with few drafts would seem quicker than it is: T divides by n A + 1 tokens a round."""
    assert history((1, 2), (0, 0)).rates == (0.5,)
    assert history((1, 2), (0, 0)).num_drafted == 1.0


@pytest.mark.parametrize("rates", [(0.5, 0.6), (0.5, 0.6, 0.61)])
def test_nothing_is_stable_that_is_short_or_changed_by_more_than_the_tolerance(rates):
    assert stable_rate(rates, 3, 0.101) is None


@pytest.mark.parametrize("before", [(), (0.9,)])
def test_stable_is_what_changed_by_less_than_the_tolerance_over_so_many_rounds(before):
    assert stable_rate((*before, 0.5, 0.6, 0.55), 3, 0.101) == pytest.approx(0.55)


@given(st.lists(st.integers(0, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=3 * WINDOW))
def test_rates_are_those_of_the_window_whatever_was_before(drafts):
    rates = history(*drafts)
    until = max((place for place, draft in enumerate(drafts, 1) if draft[1]), default=0)
    told = [draft for draft in drafts[max(0, until - WINDOW) : until] if draft[1]]
    assert len(rates.rates) <= NUM_ROUNDS
    if told:
        assert rates.rates[-1] == pytest.approx(sum(a for a, _ in told) / sum(n for _, n in told))
