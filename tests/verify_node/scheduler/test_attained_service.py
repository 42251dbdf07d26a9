"""Accounts hold sessions' service in rounds, and an order sees sessions as jobs. By hand."""

from typing import Any

import pytest

from goodspeed.fair.lengths import PRIOR_TOKENS
from goodspeed.wire.messages import Close
from tests.fakes import Desk, make_entry, session_id
from verify_node.scheduler.attained_service import ENTERED_OVERDUE, IN_FIRST_S, SERVED, Account, Accounts
from verify_node.scheduler.orders.base import AGING_S
from verify_node.scheduler.orders.laps import FIRST_S


@pytest.fixture
def one() -> Account:
    return Account(wait_began_at=0.0)


def observe(one: Account, start: int, num_fed: int, num_drafted: int = 0, *, decides=True, num_others=0, token_s=0.01):
    """A round of so many tokens of its own, and of others'."""
    entry = make_entry(1, start, (0,) * num_fed, num_drafted, samples=decides)
    one.observe(entry, token_s * (num_fed + num_others), token_s)


def test_service_is_the_time_of_rounds(one: Account) -> None:
    observe(one, 0, 6, decides=False)
    assert one.attained_s == pytest.approx(0.06)
    assert (one.turn_s, one.num_decided) == (0.0, 0)
    observe(one, 6, 5, 3)  # the last token of its prompt but one, the last, and three drafted ones
    assert one.attained_s == pytest.approx(0.11)
    assert one.turn_s == one.deciding_s == pytest.approx(0.10 - 0.06), "the last token and what is drafted decide"
    observe(one, 9, 1)
    assert one.attained_s == pytest.approx(0.12), "one drafted token was accepted, two were not"


@pytest.mark.parametrize("num_others", [0, 10])
def test_reading_again_is_no_service(one: Account, num_others: int) -> None:
    others_s = num_others * 0.01
    observe(one, 0, 9)
    one.leave(1.0)
    one.enter(2.0)
    observe(one, 0, 8, decides=False, num_others=num_others)
    assert one.attained_s == pytest.approx(0.09)
    observe(one, 8, 2, num_others=num_others)
    assert one.attained_s == pytest.approx(0.10 + others_s), "one token is new"
    assert one.turn_s == pytest.approx(0.01 + others_s)


def test_a_turn_that_brought_too_little_belongs_to_the_wait_before_it(one: Account) -> None:
    one.enter(1.0)
    one.leave(2.0)
    assert one.wait_began_at == 0.0
    one.enter(3.0)
    observe(one, 0, 1, token_s=FIRST_S)
    one.leave(4.0)
    assert one.wait_began_at == 4.0


def test_claims(one: Account) -> None:
    one.enter(AGING_S - 1.0)
    assert one.claim[0] == IN_FIRST_S
    one.enter(AGING_S + 1.0)
    assert one.claim == (ENTERED_OVERDUE, 0.0)
    observe(one, 0, 1, token_s=FIRST_S)
    assert one.claim[0] == SERVED


@pytest.fixture
def desk() -> Desk:
    return Desk("a", order="laps")


def accounts_of(desk: Desk) -> Accounts:
    accounts = desk.core.rounds.preemption.accounts
    assert accounts is not None
    return accounts


def job(desk: Desk, number: int = 1) -> Any:
    in_pool = session_id(number) in desk.core.pool
    return accounts_of(desk).job(desk.session(number), has_place=in_pool, recompute_s=0.5)


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
    [verdict] = desk.round(0.01)
    assert job(desk).rates == (1.0,)
    assert 2 * job(desk).num_drafted == verdict.num_verified > 0, "of two rounds"


def test_lengths_are_learned_from_complete_texts_of_the_client(desk: Desk) -> None:
    desk.hello("b")
    desk.begin("a", 1, max_tokens=1)
    assert desk.session(1).finished
    desk.open("a", 2, max_tokens=100)
    desk.open("b", 3, max_tokens=100)
    assert job(desk, 2).remaining_tokens < job(desk, 3).remaining_tokens == 100.0


# -- whose account it is -----------------------------------------------------------------------------------------------


def test_a_new_text_by_an_old_id_has_an_account_of_its_own(desk: Desk) -> None:
    """Closed and opened in one moment, and opened again with another prompt, also while a round is in flight."""
    desk.open(prompt=range(1, 10), max_tokens=20)
    desk.round(0.5)
    assert job(desk).attained_s > 0.0
    desk.up("a", Close(session_id(1), 1))
    desk.now = 7.0
    desk.open(prompt=range(1, 10), max_tokens=20)
    assert (job(desk).arrived_at, job(desk).attained_s) == (7.0, 0.0)
    desk.round(0.5)
    desk.open(epoch=2, prompt=range(2, 10), max_tokens=20)
    assert (job(desk).arrived_at, job(desk).attained_s) == (7.5, 0.0)
    planned = desk.plan()
    desk.open(epoch=3, prompt=range(3, 10), max_tokens=20)
    desk.finish(planned, 0.5)
    assert job(desk).attained_s == 0.0, "that round was another text's"


@pytest.mark.parametrize("order", ["laps", "fcfs"])
def test_a_text_that_goes_on_after_a_loss_keeps_its_place(order: str) -> None:
    """First come, first served keeps no accounts, and yet the arrival."""
    desk = Desk("a", order=order)
    desk.open(prompt=range(1, 10), max_tokens=20)
    desk.round(0.5)
    before = job(desk) if order == "laps" else None
    committed = desk.text()
    desk.now = 7.0
    desk.open(epoch=2, prompt=range(1, 10), committed=committed, max_tokens=20)
    assert (job(desk) if order == "laps" else desk.core.rounds.preemption.accounts) == before
    assert desk.session().arrived_at == 0.0
    desk.open(epoch=3, prompt=range(1, 10), committed=(committed[0] + 1,), max_tokens=20)
    assert desk.session().arrived_at == 7.0, "these tokens are another text's"


def test_who_loses_its_memory_by_opening_again_begins_to_wait(desk: Desk) -> None:
    """While a round is in flight nobody's memory is changed, so what is opened then has none."""
    desk.open(prompt=range(1, 10), max_tokens=20)
    desk.round(5.0)
    desk.draft(alpha=1.0)
    planned = desk.plan()
    assert job(desk).turn_s > FIRST_S
    desk.now = 7.0
    desk.open(epoch=2, prompt=range(1, 10), max_tokens=20)
    desk.finish(planned, 0.5)
    session = desk.session()
    assert (session.arrived_at, accounts_of(desk).of(session).wait_began_at) == (0.0, 7.0)


def test_accounts_end_with_their_sessions(desk: Desk) -> None:
    """Also while no round takes place."""
    accounts = accounts_of(desk)
    desk.begin(max_tokens=20)
    for number in range(2, 30):
        desk.open(number=number, max_tokens=20)
        accounts.of(desk.session(number))
        desk.up("a", Close(session_id(number), 1))
    assert len(accounts._accounts) == 1
