"""What sessions have had of the rounds' time, and how an order sees them, by hand."""

from typing import Any

import pytest

from goodspeed.fair.lengths import PRIOR_TOKENS
from goodspeed.order.base import AGING_S
from goodspeed.order.queues import FIRST_S
from tests.fakes import Desk, session_id
from verify_node.places.accounts import Account
from verify_node.places.seating import ENTERED_OVERDUE, IN_FIRST_S, SERVED


def account(**known: Any) -> Account:
    return Account(arrived_at=0.0, wait_began_at=0.0, **known)


def test_service_is_the_part_of_a_round_that_its_tokens_are() -> None:
    one = account()
    one.observe(0, 6, 0, 0.01, decides=False)
    assert one.attained_s == pytest.approx(0.06)
    assert (one.turn_s, one.num_decided) == (0.0, 0)
    one.observe(6, 5, 3, 0.01, decides=True)  # the last token of its prompt but one, the last, and three drafted ones
    assert one.attained_s == pytest.approx(0.11)
    assert one.turn_s == one.deciding_s == pytest.approx(0.04), "the last token and what is drafted decide"
    one.observe(9, 1, 0, 0.01, decides=True)
    assert one.attained_s == pytest.approx(0.12), "one drafted token was accepted, two were not"


def test_reading_again_is_no_service() -> None:
    one = account()
    one.observe(0, 9, 0, 0.01, decides=True)
    one.leave(1.0)
    one.enter(2.0)
    one.observe(0, 8, 0, 0.01, decides=False)
    assert one.attained_s == pytest.approx(0.09)
    one.observe(8, 2, 0, 0.01, decides=True)
    assert one.attained_s == pytest.approx(0.10), "one token is new"
    assert one.turn_s == pytest.approx(0.01)


def test_a_turn_that_brought_too_little_belongs_to_the_wait_before_it() -> None:
    one = account()
    one.enter(1.0)
    one.leave(2.0)
    assert one.wait_began_at == 0.0
    one.enter(3.0)
    one.observe(0, 1, 0, FIRST_S, decides=True)
    one.leave(4.0)
    assert one.wait_began_at == 4.0


def test_claims() -> None:
    one = account()
    one.enter(AGING_S - 1.0)
    assert one.claim[0] == IN_FIRST_S
    one.enter(AGING_S + 1.0)
    assert one.claim == (ENTERED_OVERDUE, 0.0)
    one.observe(0, 1, 0, FIRST_S, decides=True)
    assert one.claim[0] == SERVED


@pytest.fixture
def desk() -> Desk:
    desk = Desk(order="laps")
    desk.hello()
    return desk


def job(desk: Desk, number: int = 1) -> Any:
    places = desk.core.places
    assert places is not None
    in_pool = session_id(number) in desk.core.pool
    return places.accounts.job(desk.session(number), has_place=in_pool, recompute_s=0.5)


def test_a_job_by_hand(desk: Desk) -> None:
    desk.now = 7.0
    desk.open(max_tokens=20)
    new = job(desk)
    assert (new.arrived_at, new.waits_since, new.attained_s, new.recompute_s) == (7.0, 7.0, 0.0, 0.5)
    assert new.remaining_tokens == min(20.0, PRIOR_TOKENS)
    assert desk.round(0.03), "three tokens of the prompt: one decides"
    known = job(desk)
    assert (known.arrived_at, known.waits_since) == (7.0, None)
    assert known.attained_s == pytest.approx(0.03)
    assert known.turn_s == known.round_s == pytest.approx(0.01)
    assert known.remaining_tokens == 19.0
    desk.draft(alpha=1.0)
    num_drafted = len(desk.session().draft.tokens)
    desk.round(0.01)
    assert job(desk).rates == (1.0,)
    assert job(desk).num_drafted == num_drafted > 0


def test_lengths_are_learned_from_complete_texts_of_the_client(desk: Desk) -> None:
    places = desk.core.places
    assert places is not None
    desk.hello("b")
    desk.open("a", 1, max_tokens=1)
    desk.round()
    assert desk.session(1).finished
    assert len(places.accounts) == 0
    desk.open("a", 2, max_tokens=100)
    desk.open("b", 3, max_tokens=100)
    assert job(desk, 2).remaining_tokens < job(desk, 3).remaining_tokens == 100.0


def test_what_is_gone_is_forgotten(desk: Desk) -> None:
    places = desk.core.places
    assert places is not None
    desk.open()
    desk.round()
    assert len(places.accounts) == 1
    places.keep((), ())
    assert len(places.accounts) == 0
