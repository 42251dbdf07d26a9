"""Rounds start at their times. By hand."""

import math
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair.refined import Refined
from tests.fakes import Desk, session_id
from tests.verify_node.scheduler.drafting import session_of
from verify_node.scheduler import start as starting
from verify_node.scheduler.allocate import PERMITTED
from verify_node.scheduler.choose import PendingDraft
from verify_node.scheduler.round import RoundLimits
from verify_node.scheduler.start import earliest
from verify_node.session.draft_timer import LATER

ROUND_S = 2.0
LONGEST = starting.SHARE * ROUND_S


@pytest.fixture
def two_ready():
    return [session_of(1, draft=2, ready_since=5.0), session_of(2, draft=2, ready_since=6.0)]


def pending(number, at, num_expected=1.0, *, of_model=False):
    """A session whose draft node should answer at that time, or whose draft model should have drafted anew."""
    session = session_of(number, ready_since=5.0)
    if of_model:
        session.drafts.timer.answered(0.0)
        session.client.answer_s = 1.0
        session.drafts.timer.verdict_goes_out(at - LATER, calls=True)
    else:
        session.sent.append((len(session.tokens), at))
    return PendingDraft(session, num_expected, of_model)


def test_a_round_starts_when_somebody_is_ready_and_every_draft_there_that_it_may_not_start_without(two_ready):
    late = session_of(3, waits=True)
    assert earliest([], [], ROUND_S) == earliest([], [late], ROUND_S) == (math.inf, None)
    assert earliest(two_ready, [late], ROUND_S) == (math.inf, late)
    assert earliest(two_ready, [late], ROUND_S, [pending(4, 5.1, 99.0)]) == (math.inf, late)
    assert earliest(two_ready, [], ROUND_S) == (5.0, None)


@pytest.mark.parametrize("of_model", [False, True])
def test_a_draft_is_waited_for_where_its_tokens_are_worth_the_wait(two_ready, of_model):
    awaited = pending(3, 5.2, 0.5, of_model=of_model)  # two sessions wait 0.2 s for half a token
    soon = earliest(two_ready, [], 0.81, [awaited])
    assert soon.awaited is awaited.session
    assert soon.at == pytest.approx(5.2 + starting.SLACK_S)
    assert earliest(two_ready, [], 0.79, [awaited]) == (5.0, None)


def test_nobody_is_waited_for_beyond_a_share_of_a_round_nor_for_a_draft_that_should_long_be_there(two_ready):
    """The share is larger for a session alone."""
    within, beyond = pending(3, 5.0 + 0.99999 * LONGEST, 99.0), pending(4, 5.0 + 1.01 * LONGEST, 99.0)
    assert earliest(two_ready, [], ROUND_S, [within]) == (5.0 + LONGEST, within.session)
    assert earliest(two_ready, [], ROUND_S, [beyond]) == (5.0, None)
    by_one = pending(3, 5.0 + 0.99 * starting.SHARE_ALONE * ROUND_S, 99.0)
    assert earliest(two_ready[:1], [], ROUND_S, [by_one]).awaited is by_one.session
    assert earliest(two_ready, [], ROUND_S, [by_one]) == (5.0, None)
    assert earliest(two_ready, [], 0.0, [pending(3, 5.1, 99.0)]) == (5.0, None), "a round's time is not known at first"
    assert earliest(two_ready, [], ROUND_S, [pending(3, 5.0 - 2 * starting.SLACK_S, 99.0)]) == (5.0, None)
    soon = earliest(two_ready, [], ROUND_S, [pending(3, 5.0 - 0.5 * starting.SLACK_S, 99.0)])
    assert soon.at == pytest.approx(5.0 + starting.SLACK_S)


def test_of_several_drafts_those_are_waited_for_that_are_worth_it_together(two_ready):
    pair = [pending(3, 5.2, 0.5), pending(4, 5.2, 0.5)]
    ready = [*two_ready, *(one.session for one in pair)]  # four wait for 0.2 s
    assert earliest(ready, [], 1.0, pair[:1]) == (5.0, None)
    assert earliest(ready, [], 1.0, pair).at == pytest.approx(5.2 + starting.SLACK_S)
    early, late = pending(3, 5.1), pending(4, 5.49, 0.1)
    assert earliest(two_ready, [], ROUND_S, [late, early]).awaited is early.session
    assert earliest(two_ready, [], ROUND_S, [late, pending(4, 5.49, 9.0)]).at > 5.48
    answer, model = pending(3, 5.1, 0.3), pending(4, 5.2, 0.2, of_model=True)
    assert earliest(two_ready, [], 0.81, [model]) == (5.0, None)  # 0.16 s are saved, and 0.4 s lost
    assert earliest(two_ready, [], 0.81, [answer]).awaited is answer.session
    assert earliest(two_ready, [], 0.81, [answer, pending(4, 5.2, 0.3, of_model=True)]).awaited is not answer.session


# -- whom a round can decide for ---------------------------------------------------------------------------------------


def test_sessions_that_wait_for_memory_or_have_much_to_prefill_get_no_token():
    pool = PagePool(4, 4)
    deciding, long = session_of(1, cached=2, pool=pool), session_of(2, prompt=40, cached=2, pool=pool)
    short, waiting = session_of(3, prompt=8), session_of(4, prompt=8)  # two free pages: room for one
    of = starting.Starting({}, pool, RoundLimits(8, 32), Refined(), is_barrier=False)
    assert of.deciding([deciding, long, short, waiting]) == [deciding, short]
    assert of.deciding([long]) == [long]
    assert of.num_prefill([deciding, short, waiting], [deciding, short]) == 7, "who waits for memory prefills nothing"
    assert of.num_prefill([deciding, long], [deciding]) == 16, "half a round at most"


def test_a_round_prices_drafts_with_what_it_prefills():
    desk = Desk("a", self_draft=False)
    choice: Any = desk.core.rounds.choice
    choice.choose = Mock(wraps=choice.choose)
    desk.begin()
    desk.begin(number=2, prompt=(1,) * 9)
    desk.round()
    assert [call.args[-1] for call in choice.choose.call_args_list] == [2, 8, 0]


def test_a_session_that_waits_long_for_memory_ends_no_wait_for_drafts():
    desk = Desk("a", num_pages=3, page_size=4, self_draft=False)
    desk.open(max_tokens=7)
    desk.open(number=2, prompt=(1,) * 9, max_tokens=2)
    for _ in range(4):
        desk.round(0.1)
        desk.now += 0.01
        desk.up("a", replace(desk.honest_draft(tokens=(1,)), source="ngram"))
    desk.round(0.1)
    assert session_id(2) not in desk.core.pool
    assert desk.core.plan(desk.now) is None


def test_a_session_that_waits_for_memory_takes_nothing_of_anothers_budget_and_permission():
    """Its draft stays when it is preempted."""
    desk = Desk("a", num_pages=16, page_size=4, budget=8, self_draft=False, validates=False)
    desk.open(max_tokens=60)
    desk.open(number=2, prompt=(1,) * 24, max_tokens=24)
    desk.round()
    for number in (1, 2):
        desk.draft(number=number)
    desk.core.pool.free(session_id(2))
    desk.core.pool.extend(b"another", 4 * (desk.core.pool.num_free - 4))
    planned = desk.plan()
    [entry] = planned.entries
    assert (entry.session_id, entry.num_drafted) == (session_id(1), 8)
    desk.finish(planned)
    assert desk.session(1).drafts.may_draft == PERMITTED * 8
