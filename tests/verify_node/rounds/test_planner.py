"""When a round starts, by hand."""

import math

import pytest

from goodspeed.errors import ConfigError
from goodspeed.node import options
from tests.verify_node.packing.sessions import make_session
from verify_node.packing.round import RoundLimits
from verify_node.rounds import planner
from verify_node.rounds.planner import Hope

BARRIER, CONTINUOUS = planner.create("barrier"), planner.create("continuous")


def test_planners_by_name():
    assert planner.names() == list(options.ROUNDS)
    assert isinstance(planner.create("barrier"), planner.Barrier)
    with pytest.raises(ConfigError, match=r"barrier, continuous"):
        planner.create("never")


@pytest.mark.parametrize("rounds", [BARRIER, CONTINUOUS])
def test_nobody_ready_is_no_round(rounds):
    assert rounds.start([make_session(1, assigned=3)], [], RoundLimits(8, 32), 0.1).at == math.inf


def test_barrier_waits_for_every_draft():
    ready, late = make_session(1, draft=2, ready_since=5.0), make_session(2, assigned=3)
    assert BARRIER.start([late], [ready], RoundLimits(8, 32, 0.5), 0.1) == (math.inf, late)
    assert BARRIER.start([], [ready], RoundLimits(8, 32, 0.5), 0.1) == (5.0, None)


def due(number, at):
    session = make_session(number, assigned=3)
    session.due_at = at
    return session


@pytest.fixture
def two_ready():
    return [make_session(1, draft=2, ready_since=5.0), make_session(2, draft=2, ready_since=6.0)]


LINGER = RoundLimits(8, 32, 0.5)
SLACK = planner.LATE * 0.5


def test_continuous_rounds_start_at_once_when_no_draft_is_on_its_way(two_ready):
    assert CONTINUOUS.start([], two_ready, LINGER, 1.0) == (5.0, None)


def test_a_draft_is_waited_for_where_that_costs_the_others_less_than_it_saves(two_ready):
    late = due(3, 5.2)  # two sessions wait 0.2 s
    start = CONTINUOUS.start([late], two_ready, LINGER, 0.41)
    assert start.at == pytest.approx(5.2 + SLACK)
    assert start.whom == late
    assert CONTINUOUS.start([late], two_ready, LINGER, 0.39) == (5.0, None)


def test_nobody_is_waited_for_beyond_the_linger(two_ready):
    assert CONTINUOUS.start([due(3, 5.51)], two_ready, LINGER, 100.0) == (5.0, None)
    assert CONTINUOUS.start([due(3, 5.49)], two_ready, LINGER, 100.0).at == 5.5


def test_a_draft_that_should_long_be_there_is_not_waited_for(two_ready):
    assert CONTINUOUS.start([due(3, 5.0 - SLACK)], two_ready, LINGER, 100.0) == (5.0, None)
    assert CONTINUOUS.start([due(3, 4.99)], two_ready, LINGER, 100.0).at == pytest.approx(5.0 + SLACK)


def test_two_that_come_together_are_worth_a_wait_that_one_is_not(two_ready):
    pair = [due(3, 5.3), due(4, 5.3)]
    assert CONTINUOUS.start(pair[:1], two_ready, LINGER, 0.5) == (5.0, None)
    assert CONTINUOUS.start(pair, two_ready, LINGER, 0.5).at == pytest.approx(5.3 + SLACK)


def test_the_early_one_is_waited_for_and_not_the_late_one(two_ready):
    early, late = due(3, 5.1), due(4, 5.45)
    assert CONTINUOUS.start([late, early], two_ready, LINGER, 0.5).whom is early


def hope(number, at, num_expected):
    """One of the ready sessions, whose draft node should answer at that time."""
    session = make_session(number, assigned=0, ready_since=5.0)
    session.sent.append((len(session.tokens), at))
    return Hope(session, num_expected)


def test_an_offer_is_waited_for_where_its_tokens_are_worth_the_wait():
    hoped = hope(1, 5.2, 0.5)  # two sessions wait 0.2 s for half a token
    ready = [hoped.session, make_session(2, draft=2, ready_since=6.0)]
    assert CONTINUOUS.start([], ready, LINGER, 0.81, [hoped]).whom is hoped.session
    assert CONTINUOUS.start([], ready, LINGER, 0.79, [hoped]) == (5.0, None)


def test_an_offer_holds_up_a_share_of_a_round_at_most():
    share = planner.OFFER_SHARE
    within, beyond = hope(1, 5.0 + 0.99 * share * 10, 9.0), hope(2, 5.0 + 1.01 * share * 10, 9.0)
    assert CONTINUOUS.start([], [within.session], LINGER, 10.0, [within]).at == pytest.approx(5.0 + share * 10)
    assert CONTINUOUS.start([], [beyond.session], LINGER, 10.0, [beyond]) == (5.0, None)


def test_offers_and_drafts_are_weighed_together():
    hoped, late = hope(1, 5.1, 0.3), due(3, 5.3)
    ready = [hoped.session, make_session(2, draft=2, ready_since=6.0)]
    assert CONTINUOUS.start([late], ready, LINGER, 0.59) == (5.0, None)
    assert CONTINUOUS.start([late], ready, LINGER, 0.59, [hoped]).whom is late
