"""Orders in a verify node whose memory is short: who keeps it, who waits, and that promises are above all of them."""

from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiments.simulation.rival_orders  # noqa: F401 (it adds las and sjf to the orders)
from goodspeed.engine.paged.pages import PagePool
from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Close, Slo
from tests.fakes import Desk, alone, request_of, session_id
from tests.verify_node.answers import fed
from tests.verify_node.scheduler.drafting import pack, session_of
from verify_node.core.settings import CoreSettings
from verify_node.scheduler.choose import of_draft
from verify_node.scheduler.orders.base import AGING_S
from verify_node.scheduler.orders.fcfs import Fcfs
from verify_node.scheduler.preempt import Preemption, Shortage

ORDERS = ("fcfs", "las", "sjf", "laps")
COST = Linear(fixed_s=0.005, token_s=0.005)


def desk_of(order: str, num_pages: int, **options: Any) -> Desk:
    settings: dict[str, Any] = {"num_pages": num_pages, "order": order, "max_round_tokens": 200} | options
    return Desk("a", self_draft=False, draft_model="", **settings)


def open_one(desk: Desk, number: int, length: int, max_tokens: int, **changes: Any) -> None:
    """Opens a session with a prompt of this length."""
    desk.open(number=number, prompt=range(1, length + 1), max_tokens=max_tokens, **changes)


def resident(desk: Desk, *numbers: int) -> list[int]:
    return [number for number in numbers if session_id(number) in desk.core.pool]


@pytest.mark.parametrize(("order", "first"), [("fcfs", 1), ("las", 1), ("sjf", 2), ("laps", 2)])
def test_memory_goes_to_whom_the_order_ranks_first(order: str, first: int) -> None:
    """Eight pages of four tokens; either prompt leaves no room for the other. The second asks for four tokens only."""
    desk = desk_of(order, 8)
    open_one(desk, 1, 20, 12)
    open_one(desk, 2, 20, 4)
    desk.round()
    assert resident(desk, 1, 2) == [first]


@pytest.mark.parametrize(("order", "stays"), [("fcfs", 1), ("las", 2), ("sjf", 1), ("laps", 2)])
def test_a_text_that_was_served_for_long_gives_way_to_a_new_one(order: str, stays: int) -> None:
    """One that has had two seconds, at batch size 1, and has eight tokens before it; the new one wants one."""
    desk = desk_of(order, 8)
    open_one(desk, 1, 12, 20)
    for _ in range(4):
        desk.round(0.5)
    open_one(desk, 2, 20, 1)
    desk.round(0.5)
    if stays == 1:
        assert resident(desk, 1, 2) == [1]
    else:
        assert desk.session(2).finished
        assert resident(desk, 1) == []
        assert desk.core.counts.num_preempted == 1


@pytest.mark.parametrize("num_alone", [0, 9], ids=["together", "one by one"])
@pytest.mark.parametrize(("order", "stays"), [("fcfs", 1), ("sjf", 2), ("laps", 2)])
def test_of_two_that_grow_the_one_that_the_order_ranks_first_goes_on(order, stays, num_alone, monkeypatch):
    """Six pages of four tokens for two prompts of eleven: nobody waits, and soon both need a fourth page.

    num_alone: the rounds of single sessions that are left after one on which the target failed.
    """
    desk = desk_of(order, 6)
    open_one(desk, 1, 11, 9)
    open_one(desk, 2, 11, 5)
    for _ in range(2):
        desk.round()
    assert len(resident(desk, 1, 2)) == 2
    monkeypatch.setattr(desk.core.rounds.isolation, "num_alone", num_alone)
    desk.round()
    assert resident(desk, 1, 2) == [stays]


def test_where_sessions_go_one_by_one_memory_lost_to_one_that_finds_too_little_is_counted(monkeypatch):
    """All three need a fourth page; the first takes the third one's, as if they shared pages, and still has no room."""
    desk = desk_of("laps", 9)
    for number in (1, 2, 3):
        open_one(desk, number, 11, 9)
    for _ in range(2):
        desk.round(0.5)
    assert resident(desk, 1, 2, 3) == [1, 2, 3]
    monkeypatch.setattr(desk.core.rounds.isolation, "num_alone", 3)
    shortage = Shortage(preempt=(session_id(3),), wait=frozenset({session_id(1)}))
    monkeypatch.setattr(desk.core.rounds.preemption, "resolve", lambda *contending, **options: shortage)
    planned = desk.plan()
    assert list(fed(planned)) == [2]
    assert planned.preempted == (session_id(3),)
    assert desk.core.counts.num_preempted == 1
    assert desk.core.rounds.preemption.accounts.of(desk.session(3)).wait_began_at == desk.now


@pytest.mark.parametrize("order", ORDERS)
def test_promised_sessions_never_give_way_and_go_before_all_others(order: str) -> None:
    desk = desk_of(order, 8, admission="dp", cost=COST)
    desk.begin(number=1, prompt=range(1, 22), max_tokens=8)
    open_one(desk, 2, 10, 10, slo=Slo(Objectives(ttft_s=1.0, tpot_s=0.1)))
    assert desk.session(2).promised
    open_one(desk, 3, 8, 1)  # shorter than both, and it waits if there is no room
    desk.round()
    while not desk.session(2).finished:
        assert resident(desk, 2)
        assert desk.round()
    for _ in range(20):
        desk.round()
    for number in (1, 2, 3):
        assert desk.session(number).finished
        assert desk.text(number) == alone(request_of(desk.session(number).opened))
    assert desk.core.counts.num_preempted > 0


@pytest.mark.parametrize("order", ["las", "sjf", "laps"])
def test_with_enough_memory_the_order_is_not_asked_and_rounds_are_those_of_fcfs(order, monkeypatch):
    desks = [desk_of(order, 64), desk_of("fcfs", 64)]
    monkeypatch.setattr(desks[0].core.rounds.preemption, "_order", None)
    for step in range(30):
        if step % 3 == 0:
            for desk in desks:
                open_one(desk, step, 7, 9)
        planned = [desk.core.plan(desk.now) for desk in desks]
        assert planned[0] == planned[1]
        for desk, one in zip(desks, planned, strict=True):
            if one is not None:
                desk.finish(one)


def test_one_object_ranks_all_who_contend_once_a_round():
    """LAPS-SD counts rankings: whoever turned perceptible may be displaced in the first one after that alone."""
    desk = desk_of("laps", 8)
    order: Any = desk.core.rounds.preemption._order
    order.rank = Mock(wraps=order.rank)
    for number in (1, 2, 3):
        open_one(desk, number, 12, 9)
    for _ in range(2):
        desk.round()
        assert len(resident(desk, 1, 2, 3)) == 2
    ranked = [sorted(job.job_id for job in ranking.args[0]) for ranking in order.rank.call_args_list]
    assert ranked == [[session_id(number) for number in (1, 2, 3)]] * 2


def test_an_order_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="no order is named 'oldest'; choose one of: fcfs, laps, las, sjf"):
        CoreSettings(order="oldest")


ROUND_S = 0.5
SHORT = 6  # tokens of a short text, and so the most rounds after which it is over


class Crowd:
    """A long text, and short ones without end: as soon as one is over the next comes, so that two always wait."""

    def __init__(self, order: str) -> None:
        self.desk = desk_of(order, 8, max_client_sessions=1000, max_sessions=1000)
        open_one(self.desk, 1, 13, 12)
        self.short = [2, 3, 4]
        for number in self.short:
            open_one(self.desk, number, 9, SHORT)
        self.had_memory_at = 0.0
        self.longest_wait_s = 0.0

    def step(self) -> None:
        desk = self.desk
        desk.round(ROUND_S)
        desk.acknowledge()
        for place, number in enumerate(self.short):
            if desk.session(number).finished:
                desk.up("a", Close(session_id(number), 1))
                self.short[place] = max(self.short) + 1
                open_one(desk, self.short[place], 9, SHORT)
        if resident(desk, 1):
            self.had_memory_at = desk.now
        self.longest_wait_s = max(self.longest_wait_s, desk.now - self.had_memory_at)


@pytest.mark.parametrize("order", ORDERS)
def test_a_long_text_among_short_ones_without_end_waits_no_longer_than_aging_and_those_who_hold_memory(order):
    crowd = Crowd(order)
    while not crowd.desk.session(1).finished:
        crowd.step()
        assert crowd.longest_wait_s <= AGING_S + 2 * SHORT * ROUND_S
        assert crowd.desk.now < 12 * AGING_S
    assert crowd.desk.core.sessions.keys() > {session_id(1)}


# -- those that certainly find no room cost a round little -------------------------------------------------------------


def test_prompts_that_cannot_fit_are_not_looked_up_and_a_short_one_behind_them_goes_first():
    """Twelve pages of four tokens; the one that runs leaves eight, which suffice for the last prompt only."""
    desk = desk_of("fcfs", 12, max_client_sessions=20, max_sessions=20)
    desk.begin(number=1, prompt=range(1, 15), max_tokens=2)
    for number in range(2, 12):
        desk.open(number=number, prompt=(1,) * 41, max_tokens=4)
    open_one(desk, 12, 5, 4)
    long = {session_id(number) for number in range(2, 12)}
    pool: Any = desk.core.pool
    pool.find = Mock(wraps=pool.find)
    planned = desk.plan()
    assert set(fed(planned)) == {1, 12}
    assert long == set(planned.deferred) == set(planned.crowded_out)
    assert not long & {call.args[0] for call in pool.find.call_args_list}
    desk.finish(planned)
    while not desk.session(12).finished:
        assert desk.round()
    desk.up("a", Close(session_id(12), 1))
    assert desk.plan().admitted == (session_id(2),), "now the first of them fits"


def test_one_that_has_waited_too_long_keeps_those_behind_it_out_although_it_cannot_fit() -> None:
    desk = desk_of("fcfs", 12)
    desk.begin(number=1, prompt=range(1, 15), max_tokens=20)
    for number in (2, 3):
        desk.open(number=number, prompt=(1,) * 41, max_tokens=4)
    desk.now += AGING_S + 1.0
    open_one(desk, 4, 5, 4)
    desk.acknowledge()
    assert list(fed(desk.plan())) == [1]


TEXT: dict[str, Any] = {"prompt": st.integers(1, 40), "draft": st.integers(0, 6)}
TEXT |= {"share_cached": st.sampled_from([0.0, 0.0, 0.5, 1.0]), "ready": st.sampled_from([True, True, True, False])}
TEXT |= {"arrived_at": st.sampled_from([0.0, 100.0, 101.0]), "scope": st.sampled_from([b"", b"a", b"b"])}
a_text = st.fixed_dictionaries(TEXT)


@given(st.lists(a_text, max_size=9), st.integers(10, 40))
def test_leaving_out_those_that_certainly_find_no_room_changes_no_round(texts: list[Any], num_pages: int) -> None:
    """Sessions that arrived at 0 and are not ready are stuck; those that wait since then are overdue."""
    rounds = []
    for leaves_out in (False, True):
        pool = PagePool(num_pages, 4, prefix_cache=True)
        preemption = Preemption(Fcfs(), COST, pool)
        sessions, ready = [], []
        for number, text in enumerate(texts, 1):
            session = session_of(number, prompt=text["prompt"], draft=text["draft"])
            session.tokens[:] = [number % 3] * text["prompt"]
            session.arrived_at = session.moved_at = text["arrived_at"]
            session.prefix_scope = text["scope"]
            num_cached = int(text["share_cached"] * (text["prompt"] - 1))
            if num_cached and pool.pages_needed(session.session_id, num_cached) <= pool.num_free:
                pool.extend(session.session_id, num_cached)
                pool.publish(session.session_id, session.prefix_scope, session.tokens)
            sessions.append(session)
            ready += [session] if text["ready"] else []
        drafted = {session.session_id: of_draft(session) for session in ready if session.session_id in pool}
        out = preemption.in_vain(sessions, ready, drafted, frozenset(), 102.0) if leaves_out else frozenset()
        asked = [session for session in ready if session.session_id not in out]
        resolve = partial(preemption.resolve, now=102.0)
        planned = pack(sessions, pool, 100, 4000, ready=asked, drafted=drafted, resolve=resolve)
        entries = sorted(planned.entries, key=lambda entry: entry.session_id)
        rounds.append((entries, {*planned.admitted}, planned.preempted, {*planned.deferred, *out}))
    assert rounds[0] == rounds[1]
